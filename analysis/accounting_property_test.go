package analysis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"pgregory.net/rapid"
)

// Whatever happens and whatever was read, the parts and the rest add up to what was used where
// that is known; and the parts, where none is unknown, are those that a recount of the events
// gives.
func TestPropertyAccountingAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := newLedgerJob()
		now, top := int64(0), int64(0)
		live := []int64{}
		j.loads(0, rapid.Int64Range(1, 50).Draw(t, "first")*mib, "what=context")
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now += rapid.Int64Range(0, 120).Draw(t, "wait")
			switch rapid.SampledFrom([]string{"grow", "take", "give", "load"}).Draw(t, "what") {
			case "grow":
				bytes := rapid.Int64Range(1, 8).Draw(t, "granules") * 2 * mib
				j.grows(now, top, bytes)
				j.allocs(now, top, bytes/3, bytes/2)
				top += bytes
			case "take":
				addr := rapid.Int64Range(1, 6).Draw(t, "addr")
				j.takes(now, addr, rapid.Int64Range(0, 99).Draw(t, "bytes")*mib, "call=cudaMalloc\tlibrary="+rapid.SampledFrom([]string{"a", "b", "c\thost=1", "d\tmanaged=1"}).Draw(t, "library"))
				live = append(live, addr)
			case "give":
				if len(live) > 0 {
					j.gives(now, rapid.SampledFrom(live).Draw(t, "given"))
				}
			case "load":
				what := rapid.SampledFrom([]string{"what=context\thow=process", "what=module\tname=m\thow=process", "what=library\tname=l\thow=process", "what=graph\thow=process", "what=pool"}).Draw(t, "load")
				j.loads(now, rapid.Int64Range(-5, 50).Draw(t, "bytes")*mib, what)
			}
		}
		var lines []string
		whose := rapid.SampledFrom([]string{"all=1", "pid=71"}).Draw(t, "whose")
		lines = append(lines, "0 all=1 0 30")
		for at := int64(0); at < now+300; at += 100 {
			lines = append(lines, fmt.Sprintf("0 %s %d %d", whose, at, rapid.Int64Range(0, 500).Draw(t, "used")))
		}
		r, err := readAccount(j, lines)
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string]*accounting.Balance{"peak": &r.Peak, "end": &r.End} {
			terms := b.At.T + b.At.Rounding + b.At.Slack + b.At.Pending + b.At.Free()
			for _, l := range b.Libraries {
				terms += l.Bytes
			}
			terms += b.Context + b.Modules + b.Loads + b.Graphs + b.Pools
			// The terms may exceed a reading by a sixteenth; then there is no rest, whoever else is on the card.
			beyond := terms > b.Read.Used && terms <= b.Read.Used+b.Read.Used/16 && b.Rest == 0 && b.UnexplainedUnknown != ""
			if b.UsedUnknown == "" && !beyond && terms+b.Rest != b.Read.Used {
				t.Fatalf("%s: parts %d + rest %d is not used %d", name, terms, b.Rest, b.Read.Used)
			}
			if b.At.Seq >= 0 && !b.Read.Valid {
				t.Fatalf("%s: no reading of several: %+v", name, b)
			}
			if want := j.recount(b.At.Seq); b.At.Seq >= 0 && b.Unknown == 0 && terms != want {
				t.Fatalf("%s: parts %d, a recount up to seq %d gives %d", name, terms, b.At.Seq, want)
			}
			if b.ContextRefuted < 0 || b.ContextRefuted > 0 && !b.Unknown.Has(accounting.ContextPart) {
				t.Fatalf("%s: a context of %d is there beside %d refuted", name, b.Context, b.ContextRefuted)
			}
		}
	})
}

func readAccount(j *ledgerJob, lines []string) (*accounting.Account, error) {
	var t testing.T
	readings := readingsOf(&t, lines...)
	r, err := Run(modeltest.Source(j.events, 5), Options{Process: "p", Text: j.strings.Text})
	if err != nil {
		return nil, err
	}
	Reconcile([]Member{{Result: r, Device: &r.Devices[0], PID: 71, GPU: 0}}, readings, "")
	return r.Devices[0].Account, nil
}

// recount is what is on the device after the event of seq, by definition.
func (j *ledgerJob) recount(seq int64) (sum int64) {
	taken := map[int64]int64{}
	for _, e := range j.events[:seq+1] {
		text := j.strings.Text(e.Context)
		switch e.Kind {
		case trace.KindMap, trace.KindOverhead:
			sum += e.Provided
		case trace.KindExternalAlloc:
			taken[e.Addr] = e.Provided
			if strings.Contains(text, "host=1") || strings.Contains(text, "managed=1") {
				taken[e.Addr] = 0
			}
		case trace.KindExternalFree:
			delete(taken, e.Addr)
		}
	}
	for _, bytes := range taken {
		sum += bytes
	}
	return sum
}
