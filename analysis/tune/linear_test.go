package tune

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestReplayIsLinear: sixteen times as many streams, or live blocks, of which requests lack memory, take about sixteen times the
// processor time, not 256: a request visits only what may have memory for it.
func TestReplayIsLinear(t *testing.T) {
	stream := strings.Replace(mainArena, "main=1", "main=0", 1)
	for name, test := range map[string]struct {
		few    int64
		policy string
		card   uint64
		job    func(n int64) *job
	}{
		"streams": {200, "compact never", 4 * mib, func(n int64) *job {
			j := newJob().device(1 << 40)
			for s := range int32(n) {
				j.arenaOf(int64(s)+7, s+1, stream)
			}
			for range 6 {
				for s := range int32(n) {
					j.alloc(s+1, 1, 3*mib).free(s+1, 1)
				}
				j.mark()
			}
			return j
		}},
		"live blocks": {4000, "classic never", 2 * mib, func(n int64) *job {
			j := newJob().device(1 << 40)
			for i := range n { // of 2 MiB nothing is free
				j.alloc(0, i, 2*mib/n&^255)
			}
			for i := range n {
				j.alloc(0, n+i, mib)
			}
			return j
		}},
	} {
		t.Run(name, func(t *testing.T) {
			took := func(n int64) time.Duration {
				j := test.job(n)
				j.size = 4096
				began := modeltest.ProcessorTime(t)
				result, err := Run(context.Background(), &j.source, Options{
					Policies: []bfc.Policy{policyOf(t, test.policy)}, Text: j.text, Cards: []*accounting.Card{{Bytes: test.card}},
				})
				assert.NoError(t, err)
				assert.That(t, result.Outcomes[0].PeakR == int64(test.card), "%d bytes reserved, want all of the card's %d", result.Outcomes[0].PeakR, test.card)
				return modeltest.ProcessorTime(t) - began
			}
			few := took(test.few)
			for range 3 { // the garbage collector runs when it likes: what counts is a factor, not a share
				many := took(16 * test.few)
				if many < 64*few+time.Second/4 {
					return
				}
				t.Logf("%d take %v, %d take %v", test.few, few, 16*test.few, many)
			}
			t.Error("the replay is not linear")
		})
	}
}
