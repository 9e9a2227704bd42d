package page

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis"
)

// Exact events have a pack of their own, which the page reads after it is shown. A time is in microseconds there.
type (
	exactData struct {
		Processes []exactProcess `json:"processes"`
	}
	exactProcess struct {
		Spans   [][2]int64     `json:"spans"` // seqs, the second not included
		Time    packed         `json:"time"`  // µs, of each event of the spans
		Devices []*exactDevice `json:"devices"`
	}
	// exactDevice are the stretches of a device in order of their first event. A sort is what allocations of one place
	// in the job have in common; jobs repeat themselves, so that few sorts and repeated sequences of them suffice. Where
	// an allocator places by best fit, its addresses follow from the rest: see placing.
	exactDevice struct {
		Unit   int64  `json:"unit"` // all addresses are multiples of it from their arena's base
		Sort   packed `json:"sort"` // index + 1, 0 for the next sort that was not there before
		From   packed `json:"from"` // position: events of the spans count from 0
		Events packed `json:"events"`
		Addr   packed `json:"addr"`  // 0 as predicted; else units less those of its sort's last stretch, + 1 if not negative
		Extra  packed `json:"extra"` // bytes beyond those predicted, or, if the address is stored, beyond those of last

		Arena     packed `json:"arena"` // of a sort, as are the following
		Kind      packed `json:"kind"`  // as in keyframesData
		Requested packed `json:"requested"`
		Origin    packed `json:"origin"`

		PausedFrom packed `json:"pausedFrom"`
		Paused     packed `json:"paused"`
	}
)

// exactPack is the pack of the exact events, nil if there are none.
func (b *builder) exactPack() []byte {
	var p pack
	out := exactData{Processes: []exactProcess{}}
	any := false
	for _, r := range b.page.Results {
		process := exactProcess{Spans: [][2]int64{}, Devices: []*exactDevice{}}
		for i := range r.Devices {
			k := r.Devices[i].Keyframes
			if k == nil || k.Exact == nil || len(k.Exact.Time) == 0 {
				process.Devices = append(process.Devices, nil)
				continue
			}
			if len(process.Spans) == 0 {
				process.times(&p, k.Exact)
			}
			process.Devices = append(process.Devices, newExact(&p, k.Exact, r, nil))
			any = true
		}
		out.Processes = append(out.Processes, process)
	}
	if !any {
		return nil
	}
	return p.finish(out)
}

func (e *exactProcess) times(p *pack, x *analysis.ExactEvents) {
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

func newExact(p *pack, x *analysis.ExactEvents, r, whole *analysis.Result) *exactDevice {
	place := placesOf(r, whole)
	rows := slices.Clone(x.Stretches)
	slices.SortStableFunc(rows, func(a, b analysis.Stretch) int { return cmp.Compare(a.From, b.From) })
	base := func(arena int32) int64 { return r.Arenas[arena].Base }
	out := &exactDevice{}
	for i := range rows {
		out.Unit = divisor(out.Unit, rows[i].Addr-base(rows[i].Arena))
	}
	out.Unit = max(1, out.Unit)
	placing := newPlacing(rows, base)
	index := map[sortOf]int{}
	var sorts []sortOf
	var last []lastOfSort
	var sort, from, events, addr, extra []int64
	for i := range rows {
		s := &rows[i]
		key := sortOf{s.Arena, kindOf(s), s.Requested, s.Origin}
		at, known := index[key]
		if known {
			sort = append(sort, int64(at)+1)
		} else {
			at = len(sorts)
			index[key] = at
			sorts, last, sort = append(sorts, key), append(last, lastOfSort{}), append(sort, 0)
		}
		from = append(from, int64(s.From))
		if length := int64(s.To - s.From); int(s.To) < len(x.Time) {
			events = append(events, length)
		} else {
			events = append(events, 0) // to the end
		}
		offset, more := s.Addr-base(s.Arena), s.Bytes-roundedUp(s.Requested)
		units := offset / out.Unit
		predicted, bytes, ok := placing.next(i)
		if ok && offset == predicted {
			addr, extra = append(addr, 0), append(extra, s.Bytes-bytes)
		} else {
			d := units - last[at].units
			if d >= 0 {
				d++
			}
			addr, extra = append(addr, d), append(extra, more-last[at].extra)
		}
		last[at] = lastOfSort{units, more}
	}
	out.Sort, out.From, out.Events = p.plain(sort), p.column(from), p.shortest(events)
	out.Addr, out.Extra = p.shortest(addr), p.shortest(extra)
	of := func(value func(*sortOf) int64) packed {
		values := make([]int64, len(sorts))
		for i := range sorts {
			values[i] = value(&sorts[i])
		}
		return p.shortest(values)
	}
	out.Arena = of(func(s *sortOf) int64 { return place[s.arena] })
	out.Kind = of(func(s *sortOf) int64 { return s.kind })
	out.Requested = of(func(s *sortOf) int64 { return s.requested })
	out.Origin = of(func(s *sortOf) int64 { return int64(s.origin) })
	out.PausedFrom = columnOf(p, x.Paused, func(s *analysis.ExactStep) int64 { return int64(s.From) })
	out.Paused = columnOf(p, x.Paused, func(s *analysis.ExactStep) int64 { return s.Bytes })
	return out
}

// placesOf are the places that the arenas of a result have in the result of the whole process, nil for itself.
func placesOf(r, whole *analysis.Result) []int64 {
	if whole == nil {
		whole = r
	}
	places := make([]int64, len(r.Arenas))
	for i := range r.Arenas {
		places[i] = int64(slices.IndexFunc(whole.Arenas, func(a analysis.ArenaInfo) bool { return a.ID == r.Arenas[i].ID }))
	}
	return places
}

// divisor is the greatest common divisor of a and b, a itself if b is 0.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}

// kindOf is the kind of a stretch on the page: 4 is mapped memory where a region starts.
func kindOf(s *analysis.Stretch) int64 {
	if s.Region {
		return 4
	}
	return int64(s.Kind)
}

// servedEvents is an answer of the server behind a page: the events around one of them.
type servedEvents struct {
	exactProcess
	Device *exactDevice `json:"device"`
	Names  namesData    `json:"names"`
	Arenas []arenaData  `json:"arenas"` // of the process, as far as the server has read
	Event  int64        `json:"event"`  // which was asked for
}

// Events is the pack with the exact events of a device of a result of some events, and the event that was asked for.
// Arenas are numbered as in the result of the whole process.
func Events(r *analysis.Result, d *analysis.DeviceResult, event int64, whole *analysis.Result) []byte {
	var p pack
	out := servedEvents{exactProcess: exactProcess{Spans: [][2]int64{}, Devices: []*exactDevice{}}, Arenas: newArenas(whole), Event: event}
	out.times(&p, d.Keyframes.Exact)
	out.Device, out.Names = newExact(&p, d.Keyframes.Exact, r, whole), newNames(&p, d.Keyframes)
	return p.finish(out)
}
