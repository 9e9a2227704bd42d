package analysis

import (
	"testing"

	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/ledger"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const mib = 1 << 20

// run analyzes events in batches of n.
func run(t testing.TB, r *modeltest.Recorder, opt Options) *Result {
	t.Helper()
	opt.Text = r.Strings.Text
	result, err := explored(r, opt, nil) // keyframes are held against their instants
	assert.NoError(t, err)
	return result
}

// explored is the result of both passes over events in batches, with the keyframes and every event of some spans.
func explored(r *modeltest.Recorder, opt Options, spans []keyframes.Span) (*Result, error) {
	opt.Explore = true
	result, err := Run(modeltest.Source(r.Events, 7), opt)
	if err != nil {
		return nil, err
	}
	return result, result.Explore(modeltest.Source(r.Events, 5), opt, spans)
}

var newArena, alloc, numbered, job = modeltest.NewArena, modeltest.Alloc, modeltest.Numbered, modeltest.Job

// The worked example of the literature: classic growth, limit 1 GiB, separate regions of
// 2 and 4 MiB. Free memory was never handed out before (reserve) or was (external).
func TestGoldenSplit(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: 1 << 30}, bfc.DeviceOptions{})
	var got []ledger.Instant
	step := func() {
		i := run(t, r, Options{}).Devices[0].Final
		got = append(got, ledger.Instant{T: i.T, C: i.C, R: i.R, Rounding: i.Rounding, Slack: i.Slack, Stranded: i.Stranded, Reserve: i.Reserve, Reusable: i.Reusable, External: i.External})
	}
	allocate := func(size uint64) uint64 {
		addr := alloc(t, a, size, "")
		step()
		return addr
	}
	free := func(addr uint64) {
		a.Free(addr, false)
		step()
	}
	allocate(1000)
	b := allocate(1_500_000)
	allocate(590_000)
	c := allocate(3 * mib)
	free(b)
	allocate(900_000)
	free(c)
	allocate(2 * mib)

	want := []ledger.Instant{
		{T: 1000, C: 1024, R: 2097152, Rounding: 24, Reserve: 2096128},
		{T: 1501000, C: 2097152, R: 2097152, Rounding: 184, Slack: 595968},
		{T: 2091000, C: 2687232, R: 6291456, Rounding: 264, Slack: 595968, Reserve: 3604224},
		{T: 5236728, C: 6291456, R: 6291456, Rounding: 264, Slack: 1054464},
		{T: 3736728, C: 4195328, R: 6291456, Rounding: 104, Slack: 458496, Reusable: 2096128},
		{T: 4636728, C: 5095424, R: 6291456, Rounding: 200, Slack: 458496, Reusable: 1196032},
		{T: 1491000, C: 1491200, R: 6291456, Rounding: 200, Reusable: 3604224, External: 1196032},
		{T: 3588152, C: 5095424, R: 6291456, Rounding: 200, Slack: 1507072, Reusable: 1196032},
	}
	assert.Diff(t, want, got)

	d := run(t, r, Options{}).Devices[0]
	peak := ledger.Instant{Seq: 6, Time: 6000, T: 5236728, C: 6291456, R: 6291456, Rounding: 264, Slack: 1054464, Live: 4}
	assert.Diff(t, peak, d.Peak)
	assert.That(t, d.MaxT == 5236728 && d.MaxC == 6291456 && d.MaxR == 6291456 && d.Allocs == 6 && d.Frees == 2,
		"max T %d, C %d, R %d; %d allocs, %d frees", d.MaxT, d.MaxC, d.MaxR, d.Allocs, d.Frees)
	growths := []Growth{
		{Seq: 1, Time: 1000, Request: 1000, Grown: 2 * mib, Reserved: 2 * mib, Verdict: Capacity},
		{Seq: 4, Time: 4000, Request: 590_000, Grown: 4 * mib, Reserved: 6 * mib, Verdict: Capacity},
	}
	assert.Diff(t, growths, d.Growths)
}

// A region of which nothing is mapped any more is gone: mapping there again is a growth.
// The peak is the growth itself.
func TestMapAndUnmapOnly(t *testing.T) {
	r := modeltest.New()
	r.Add(trace.Event{Kind: trace.KindArena, Context: r.Strings.Intern("growth=needed coalesces=1")})
	for range 2 {
		r.Add(trace.Event{Kind: trace.KindMap, Addr: 0x100000, Requested: 4096, Provided: 4096})
		r.Add(trace.Event{Kind: trace.KindUnmap, Addr: 0x100000, Provided: 4096})
	}
	d := run(t, r, Options{}).Devices[0]
	if d.GrowthCount != 2 || d.Peak.Seq != 1 || d.Peak.Reserve != 4096 || d.Chunks.Largest() != 4096 || d.Final.R != 0 {
		t.Errorf("%d growths, peak %+v, largest free %d", d.GrowthCount, d.Peak, d.Chunks.Largest())
	}
}

func TestErrorsNameTheEvent(t *testing.T) {
	arena := trace.Event{Kind: trace.KindArena, Context: 1}
	mapping := trace.Event{Kind: trace.KindMap, Addr: 0x100000, Requested: 4096, Provided: 4096}
	block := trace.Event{Kind: trace.KindAlloc, Addr: 0x100400, Requested: 1000, Provided: 1024}
	free := trace.Event{Kind: trace.KindFree, Addr: 0x100400, Requested: 1000, Provided: 1024}
	at := func(e trace.Event, addr, provided int64) trace.Event {
		e.Addr, e.Provided = addr, provided
		return e
	}
	for name, test := range map[string]struct {
		events []trace.Event
		want   string
	}{
		"no arena": {[]trace.Event{mapping}, "event seq 0, map at 0x100000 in arena 0: no arena event describes arena 0"},
		"outside": {[]trace.Event{arena, mapping, at(block, 0x101000, 1024)},
			"event seq 2, alloc at 0x101000 in arena 0: 0x101000 is not in mapped memory of the arena"},
		"past the end": {[]trace.Event{arena, mapping, at(block, 0x100c00, 2048)},
			"event seq 2, alloc at 0x100c00 in arena 0: mapped memory of the arena ends at 0x101000"},
		"same block": {[]trace.Event{arena, mapping, block, block},
			"event seq 3, alloc at 0x100400 in arena 0: 0x100400 to 0x100800 is a live chunk, handed out by seq 2"},
		"inside a block": {[]trace.Event{arena, mapping, block, at(block, 0x100500, 1024)},
			"event seq 3, alloc at 0x100500 in arena 0: 0x100400 to 0x100800 is a live chunk, handed out by seq 2"},
		"into a block": {[]trace.Event{arena, mapping, block, at(block, 0x100000, 2048)},
			"event seq 3, alloc at 0x100000 in arena 0: 0x100400 to 0x100800 is a live chunk, handed out by seq 2"},
		"free of nothing": {[]trace.Event{arena, mapping, free},
			"event seq 2, free at 0x100400 in arena 0: no chunk that starts there is live"},
		"free twice": {[]trace.Event{arena, mapping, block, free, free},
			"event seq 4, free at 0x100400 in arena 0: no chunk that starts there is live"},
		"free of other size": {[]trace.Event{arena, mapping, block, at(free, 0x100400, 2048)},
			"event seq 3, free at 0x100400 in arena 0: 1000 bytes in a chunk of 2048, but seq 2 handed out 1000 in 1024"},
		"unmap in use": {[]trace.Event{arena, mapping, block, at(trace.Event{Kind: trace.KindUnmap}, 0x100000, 4096)},
			"event seq 3, unmap at 0x100000 in arena 0: 0x100400 to 0x100800 is a live chunk, handed out by seq 2"},
		"map twice": {[]trace.Event{arena, mapping, at(mapping, 0x100800, 4096)},
			"event seq 2, map at 0x100800 in arena 0: 0x100800 to 0x101800 overlaps 0x100000 to 0x101000, mapped in arena 0"},
		"asked more than given": {[]trace.Event{arena, mapping, at(block, 0x100000, 512)},
			"event seq 2, alloc at 0x100000 in arena 0: 1000 bytes asked for, 512 provided"},
	} {
		t.Run(name, func(t *testing.T) {
			r := modeltest.New()
			for _, e := range test.events {
				r.Add(e)
			}
			_, err := Run(modeltest.Source(r.Events, 100), Options{})
			assert.That(t, err != nil && err.Error() == test.want, "error %v\nwant  %s", err, test.want)
		})
	}
}

// A state that does not add up is an error, whatever led to it.
func TestIdentityIsChecked(t *testing.T) {
	for name, spoil := range map[string]func(*ledger.Split){
		"untouched":     func(s *ledger.Split) { s.Untouched++ },
		"touched":       func(s *ledger.Split) { s.Touched-- },
		"kinds of free": func(s *ledger.Split) { s.Touched -= 2048; s.Untouched += 2048 },
		"rounding":      func(s *ledger.Split) { s.Rounding++; s.Untouched-- },
		"pending":       func(s *ledger.Split) { s.Pending++ },
		"reserved":      func(s *ledger.Split) { s.R++ },
	} {
		t.Run(name, func(t *testing.T) {
			r := modeltest.New()
			model := newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true})
			x := alloc(t, model, 1000, "")
			a := newAnalyzer(Options{Text: r.Strings.Text})
			for i := range r.Events {
				assert.NoError(t, a.event(&r.Events[i]))
			}
			spoil(&a.arenas[0].Split)
			model.Free(x, false)
			err := a.event(&r.Events[len(r.Events)-1])
			assert.That(t, err != nil, "a spoilt state passed")
		})
	}
}

func spanOf(start, bytes int64, kind ledger.SpanKind) ledger.Span {
	return ledger.Span{Start: start, Bytes: bytes, Kind: kind}
}
