package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/memprof/memprof/bfc"
)

// TestResultsAgree runs jobs that write, copy and compare the contents of their blocks, on several
// streams, under all policies: what they compute must not depend on where a policy puts them. A
// campaign tries each policy on each job; the short form a few.
func TestResultsAgree(t *testing.T) {
	b := newServedBench(t)
	first, jobs := firstSeed(t, 2)
	for i := range jobs {
		seed := first + uint64(i)
		policies := append([]bfc.Policy{bfc.Classic(), compact}, allPolicies()...)
		if *servedJobs == 0 {
			choice := rand.New(rand.NewPCG(seed, 1))
			choice.Shuffle(len(policies)-2, func(i, k int) { policies[i+2], policies[k+2] = policies[k+2], policies[i+2] })
			policies = policies[:8]
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b, want := b.part(t), ""
			for _, p := range policies {
				got := b.served("results", "8GiB", p, "results", fmt.Sprint(seed), "0")
				if want == "" {
					want = got
				}
				if got != want || !strings.Contains(got, ": 0 refused, sum ") {
					t.Errorf("job %d under %v:\n%sand under %v:\n%s", seed, p, got, policies[0], want)
				}
			}
		})
	}
}
