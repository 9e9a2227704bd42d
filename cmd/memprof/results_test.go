package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestResultsAgree runs jobs that write, copy and compare the contents of their blocks, on several
// streams, under all policies: what they compute must not depend on where a policy puts them.
func TestResultsAgree(t *testing.T) {
	b := newServedBench(t)
	first, jobs := firstSeed(t, 1)
	for i := range jobs {
		seed := first + uint64(i)
		policies := allPolicies()
		for _, preset := range bfc.Presets() {
			p := preset.Policy()
			p.Trim = bfc.Trim{When: bfc.TrimIdle, Idle: 20 * time.Millisecond}
			policies = append(policies, p)
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b, want := b.part(t), ""
			for _, p := range policies {
				got := b.served("results", "8GiB", p, "results", fmt.Sprint(seed), "0")
				if want == "" {
					want = got
				}
				assert.That(t, got == want && strings.Contains(got, ": 0 refused, sum "),
					"job %d under %v:\n%sand under %v:\n%s", seed, p, got, policies[0], want)
			}
		})
	}
}
