package recorder

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest"
)

// A trigger fires at the value that the analysis of the events comes to, and not above it: of a watched with a pause, with ranges of
// graph memory, and with a block that gave its slack back.
func TestFiresAsAnalyzed(t *testing.T) {
	mixed := tracetest.Mixed()
	r := modeltest.New()
	a, err := r.NewArena(0, bfc.Options{Limit: 1 << 30, Growth: bfc.Needed}, bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 << 20, Base: 1 << 40}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		addr, ok := a.Alloc(3<<20, "")
		if !ok {
			t.Fatal("no memory")
		}
		a.Shrink(addr)
		a.Free(addr, false)
	}
	for name, of := range map[string]struct {
		events []trace.Event
		text   func(int32) string
	}{
		"mixed":  {mixed.Events, func(context int32) string { return mixed.Texts[context] }},
		"shrunk": {r.Events, r.Strings.Text},
	} {
		live := analysis.NewLive(analysis.Options{Text: of.text})
		for i := range of.events {
			e := of.events[i]
			e.Seq = int64(i)
			if err := live.Add(&e); err != nil {
				t.Fatal(err)
			}
		}
		for _, metric := range []string{"reserved.peak", "requested.peak", "provided.peak"} {
			m, _ := analysis.LookupMetric(metric)
			value, _, _ := m.Value(live.Subjects(0))
			at := fmt.Sprintf("%s >= %dB", metric, int64(value))
			var triggers []Trigger
			for _, condition := range []string{at, fmt.Sprintf("%s > %dB", metric, int64(value))} {
				one, err := ParseTrigger(condition)
				if err != nil {
					t.Fatal(err)
				}
				triggers = append(triggers, one)
			}
			var got []string
			w := NewWatcher(triggers, func(why string, failed bool) {
				if strings.HasSuffix(why, "device 0") {
					got = append(got, why)
				}
			}, func(err error) { t.Error(err) })
			for i := range of.events {
				w.Event("rank0", &of.events[i], of.text)
				w.Poll()
			}
			if diff := cmp.Diff([]string{at + ", in rank0 on device 0"}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

// A trigger reports a watched by its name, and of its devices the first that fulfils it.
func TestTellsInOrder(t *testing.T) {
	crossed, err := ParseTrigger("reserved.peak > 1GiB")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		var got []string
		w := NewWatcher([]Trigger{crossed}, func(why string, failed bool) { got = append(got, fmt.Sprint(why, " ", failed)) }, func(err error) { t.Error(err) })
		for _, name := range []string{"rank1", "rank0"} {
			for _, device := range []int32{7, 5, 1, 6, 2} {
				bytes := int64(2 << 30)
				if device == 1 {
					bytes = 1 << 30
				}
				w.Event(name, &trace.Event{Kind: trace.KindMap, Device: device, Arena: device, Addr: int64(device) << 40, Provided: bytes}, nil)
			}
			w.Event(name, &trace.Event{Kind: trace.KindOOM}, nil)
		}
		w.Poll()
		w.Poll()
		want := []string{
			"reserved.peak > 1GiB, in rank0 on device 2 false", "reserved.peak > 1GiB, in rank1 on device 2 false", "a request failed for good true",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("reported (-want +got):\n%s", diff)
		}
	}
}
