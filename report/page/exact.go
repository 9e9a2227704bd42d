package page

import (
	"cmp"
	"maps"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
)

// Exact events have a pack of their own, which the page reads after it is shown. A time is in microseconds there.
type (
	exactData struct {
		Processes []exactProcess `json:"processes"`
	}
	exactProcess struct {
		Spans   [][2]int64 `json:"spans"` // seqs, the second not included
		Time    packed     `json:"time"`  // µs, of each event of the spans
		Devices []columns  `json:"devices"`
	}
)

// exactPack is the pack of the exact events, nil if there are none.
func (b *builder) exactPack() []byte {
	var p pack
	out := exactData{Processes: []exactProcess{}}
	any := false
	for _, r := range b.page.Results {
		process := exactProcess{Spans: [][2]int64{}, Devices: []columns{}}
		for i := range r.Devices {
			k := r.Devices[i].Keyframes
			if k == nil || k.Exact == nil || len(k.Exact.Time) == 0 {
				process.Devices = append(process.Devices, nil)
				continue
			}
			if len(process.Spans) == 0 {
				process.times(&p, k.Exact)
			}
			process.Devices = append(process.Devices, newExact(&p, k.Exact, r))
			any = true
		}
		out.Processes = append(out.Processes, process)
	}
	if !any {
		return nil
	}
	return p.finish(mustJSON(out))
}

func (e *exactProcess) times(p *pack, x *keyframes.Exact) {
	for _, s := range x.Spans {
		e.Spans = append(e.Spans, [2]int64{s.From, s.To})
	}
	micros := make([]int64, len(x.Time))
	for i, ns := range x.Time {
		micros[i] = ns / 1000
	}
	e.Time = p.column(micros)
}

// sortOf is what stretches of one sort share, and last the place of the last one: its extra are bytes beyond those
// requested, rounded up to 256.
type (
	sortOf struct {
		arena     int32
		kind      int64
		requested int64
		origin    int32
	}
	lastOfSort struct{ units, extra int64 }
)

// newExact are the stretches of a device in order of their first event. A sort is what allocations of one place
// in the job have in common; jobs repeat themselves, so that few sorts and repeated sequences of them suffice. An
// allocator often gives them the same addresses again, so an address is stored as its distance from the last one.
func newExact(p *pack, x *keyframes.Exact, r *analysis.Result) columns {
	w := newExactRows(x, r)
	for i := range w.rows {
		w.add(&w.rows[i])
	}
	out := columns{
		"unit":   w.unit,               // all addresses are multiples of it from their arena's base
		"sort":   p.plain(w.sort),      // index + 1, 0 for the next sort that was not there before
		"from":   p.column(w.from),     // position: events of the spans count from 0
		"events": p.shortest(w.events), // 0: to the end
		"addr":   p.shortest(w.addr),   // units less those of its sort's last stretch
		"extra":  p.shortest(w.extra),  // bytes beyond the request, rounded up to 256, less those of its sort's last stretch
	}
	for _, c := range []column[sortOf]{
		{"arena", func(s *sortOf) int64 { return int64(s.arena) }},
		{"kind", func(s *sortOf) int64 { return s.kind }}, // as [kindOf] has it
		{"requested", func(s *sortOf) int64 { return s.requested }},
		{"origin", func(s *sortOf) int64 { return int64(s.origin) }},
	} {
		values := make([]int64, len(w.sorts))
		for i := range w.sorts {
			values[i] = c.of(&w.sorts[i])
		}
		out[c.name] = p.shortest(values)
	}
	maps.Copy(out, columnsOf(p, x.Paused, []column[keyframes.Step]{
		{"pausedFrom", func(s *keyframes.Step) int64 { return int64(s.From) }},
		{"paused", func(s *keyframes.Step) int64 { return s.Bytes }},
	}))
	return out
}

// exactRows fills the columns of the stretches of a device.
type exactRows struct {
	rows  []keyframes.Stretch // in order of their first event
	total int                 // events of the spans
	unit  int64
	base  func(arena int32) int64

	index map[sortOf]int // into sorts and last
	sorts []sortOf
	last  []lastOfSort

	sort, from, events, addr, extra []int64
}

func newExactRows(x *keyframes.Exact, r *analysis.Result) *exactRows {
	w := &exactRows{
		rows: slices.Clone(x.Stretches), total: len(x.Time), index: map[sortOf]int{},
		base: func(arena int32) int64 { return r.Arenas[arena].Base },
	}
	slices.SortStableFunc(w.rows, func(a, b keyframes.Stretch) int { return cmp.Compare(a.From, b.From) })
	for i := range w.rows {
		w.unit = divisor(w.unit, w.rows[i].Addr-w.base(w.rows[i].Arena))
	}
	w.unit = max(1, w.unit)
	return w
}

// add adds a row: its sort, when it was, and where.
func (w *exactRows) add(s *keyframes.Stretch) {
	at := w.sortAt(s)
	w.from = append(w.from, int64(s.From))
	if int(s.To) < w.total {
		w.events = append(w.events, int64(s.To-s.From))
	} else {
		w.events = append(w.events, 0) // to the end
	}
	units, more := (s.Addr-w.base(s.Arena))/w.unit, s.Bytes-(s.Requested+255)&^255
	w.addr, w.extra = append(w.addr, units-w.last[at].units), append(w.extra, more-w.last[at].extra)
	w.last[at] = lastOfSort{units, more}
}

// sortAt adds the sort of a stretch to its column, and returns where that sort is.
func (w *exactRows) sortAt(s *keyframes.Stretch) int {
	key := sortOf{s.Arena, kindOf(s), s.Requested, s.Origin}
	at, known := w.index[key]
	if known {
		w.sort = append(w.sort, int64(at)+1)
		return at
	}
	at = len(w.sorts)
	w.index[key] = at
	w.sorts, w.last, w.sort = append(w.sorts, key), append(w.last, lastOfSort{}), append(w.sort, 0)
	return at
}

// divisor is the greatest common divisor of a and b, a itself if b is 0.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}

// kindOf is the kind of a stretch on the page: 0 mapped, 1 reserve, 2 pending, 3 live, 4 mapped where a region starts.
func kindOf(s *keyframes.Stretch) int64 {
	if s.Region {
		return 4
	}
	return int64(s.Kind)
}

// servedEvents is an answer of the server behind a page: the events around one of them.
type servedEvents struct {
	exactProcess
	Device columns     `json:"device"`
	Names  columns     `json:"names"`
	Arenas []arenaData `json:"arenas"` // of the part that was read
	Event  int64       `json:"event"`  // which was asked for
}

// Events is the pack with the exact events of a device of a result of some events, and the event that was asked for.
func Events(r *analysis.Result, d *analysis.DeviceResult, event int64) []byte {
	var p pack
	out := servedEvents{exactProcess: exactProcess{Spans: [][2]int64{}, Devices: []columns{}}, Arenas: newArenas(r), Event: event}
	out.times(&p, d.Keyframes.Exact)
	out.Device, out.Names = newExact(&p, d.Keyframes.Exact, r), newNames(&p, d.Keyframes)
	return p.finish(mustJSON(out))
}
