package tune

import (
	"context"
	"testing"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A library's memory may be freed by a thread whose device is another one: it is free on the device that it was on.
func TestLibraryFreesFromAnotherDevice(t *testing.T) {
	j := newJob().device(64 * mib)
	j.texts = append(j.texts, "library=libnccl.so")
	j.event(trace.KindExternalAlloc, trace.NoArena, trace.Event{Device: 0, Addr: 99, Requested: 40 * mib, Provided: 40 * mib, Context: int32(len(j.texts) - 1)})
	j.event(trace.KindExternalFree, trace.NoArena, trace.Event{Device: 1, Addr: 99})
	j.alloc(0, 1, 50*mib)
	for name, on := range map[string][]*accounting.Card{"as recorded": nil, "on a card": {{Bytes: 64 * mib}}} {
		j.at = 0
		result, err := Run(context.Background(), &j.source, Options{Policies: []bfc.Policy{policyOf(t, "compact never")}, Text: j.text, Cards: on})
		assert.NoError(t, err)
		if o := &result.Outcomes[0]; o.Refused != 0 || o.PeakR != 50*mib {
			t.Errorf("%s: %d requests were refused, and %d bytes reserved, want 0 and 50 MiB", name, o.Refused, o.PeakR)
		}
	}
}
