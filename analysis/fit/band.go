package fit

import (
	"context"
	"math/rand/v2"
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace"
)

// guess is a workspace whose size a dry run does not know: it has from 0 to most bytes. Its event is a label of the operator's result.
type guess struct {
	at      int32 // the event after which the workspace is requested
	result  int32 // the block of the operator's result
	request int32 // the block of the workspace, of the likely size; -1 where that is 0: then nothing is requested
	most    int64
}

// label notes what the label of a block says of the workspace that comes next.
func (r *reader) label(e *trace.Event, at int32) {
	words := trace.ParseContext(e.Kind, r.text(e.Context))
	if words.Get("category") == attribution.Optimizer.String() {
		name := words.Get("name")
		r.states[name[strings.LastIndexByte(name, '.')+1:]] = true
		if kind := words.Get("optimizer"); kind != "" {
			r.optimizers[kind] = true
		}
	}
	if of, ok := r.live[e.Addr]; ok && words.Get("workspace_most") != "" {
		r.guesses = append(r.guesses, guess{at: at, result: of, request: -1, most: words.Count("workspace_most", 0)})
		r.expected = words.Count("workspace", 0)
	}
}

// guessed takes a new block: it may be the workspace that the last guess is about.
func (r *reader) guessed(b *block) {
	if n := len(r.guesses); r.expected > 0 && b.bytes == r.expected && r.events[b.alloc].Thread == r.events[r.guesses[n-1].at].Thread {
		r.guesses[n-1].request, r.expected = int32(len(r.blocks)), 0
	}
}

// withGuesses is the history in which each workspace of unknown size has its least bytes, none, or its most.
func (h *History) withGuesses(most func(*guess) bool) *edit {
	e := h.edit()
	for i := range h.guesses {
		switch g, large := &h.guesses[i], most(&h.guesses[i]); {
		case g.request >= 0 && large:
			e.resize(g.request, g.most)
		case g.request >= 0:
			e.drop(g.request)
		case large:
			addr := e.newCopy(g.result, g.at+1)
			e.ops[len(e.ops)-1].bytes = g.most
			e.ops = append(e.ops, op{before: g.at + 1, frees: true, block: g.result, addr: addr, bytes: g.most})
		}
	}
	return e
}

func none(*guess) bool { return false }
func all(*guess) bool  { return true }

// draws is with how many choices of sizes, beside none and the most, a job is replayed, and with how many paces of the device. What PyTorch
// reserves, and the least card, do not grow with the sizes: its segments are others then. Two choices would say too little.
const draws = 16

// drawn is a choice of sizes without any order. One operator has the same size each time.
func (h *History) drawn(number uint64) func(*guess) bool {
	return func(g *guess) bool {
		chosen := rand.NewPCG(number, uint64(g.most)^uint64(h.blocks[g.result].bytes)<<20)
		return chosen.Uint64()%2 == 1
	}
}

// lag is the wait of a block for other streams, by events: its free, the end of its wait, and the last one before the free at which the host
// waited for the device.
type lag struct {
	free, done, since int32
}

// waited takes the end of a block's wait, or of an iteration. In a dry run the host waits for the device at both.
func (r *reader) waited(e *trace.Event, at int32) {
	if l, ok := r.freed[e.Addr]; ok && e.Kind == trace.KindFreeDone {
		l.done = at
		r.lags = append(r.lags, l)
	}
	r.since = at
}

// withPace is the history in which the device takes 1 + eighths/8 times as long for the work of an iteration as the host for submitting it. A
// block that other streams use is free when the device has come to its free: PyTorch asks for that at each request. A dry run's device is
// slower than any pace, and comes there when the host waits for it.
func (h *History) withPace(eighths int) *edit {
	e := h.edit()
	for _, l := range h.lags {
		if at := l.since + int32(int(l.free-l.since)*(8+eighths)/8); at < l.done {
			e.left[l.done] = true
			e.ops = append(e.ops, op{before: at + 1, done: l.done})
		}
	}
	return e
}

// Requested is the greatest sum of requested bytes, from the least to the most that workspaces of unknown sizes leave open.
func (h *History) Requested() plain.Band {
	if len(h.guesses) == 0 {
		return plain.BandOf(h.most)
	}
	return plain.BandOf(h.most, h.withGuesses(none).requested(), h.withGuesses(all).requested())
}

// Edges are the job as it may be otherwise, where a dry run does not know all of it; none where it does.
func (h *History) Edges(j *Job) (edges []*Job) {
	if len(h.guesses) > 0 {
		edges = append(edges, h.withGuesses(none).job(j), h.withGuesses(all).job(j))
		for number := range uint64(draws) {
			edges = append(edges, h.withGuesses(h.drawn(number)).job(j))
		}
	}
	if j.DryRun && len(h.lags) > 0 { // a recording of a GPU knows when they ended
		for eighths := range draws {
			edges = append(edges, h.withPace(eighths).job(j))
		}
	}
	return edges
}

// Bands are what a dry run leaves open of a job's needs: sizes of workspaces, and when other streams come to an end. They have no width
// where it knows both.
type Bands struct {
	Reserved, Card plain.Band
}

// widen adds what the job needs otherwise.
func (b *Bands) widen(n *Need) {
	b.Reserved = plain.BandOf(n.Reserved, b.Reserved.Least, b.Reserved.Greatest)
	b.Card = plain.BandOf(n.Bytes, b.Card.Least, b.Card.Greatest)
}

func bandsOf(n *Need) Bands { return Bands{plain.BandOf(n.Reserved), plain.BandOf(n.Bytes)} }

// bound adds what a dry run leaves open. edges are the jobs as they may be otherwise.
func (a *Answer) bound(ctx context.Context, edges [][]*Job, o Options) error {
	yes := make([]int, len(a.Rows))
	for i := range a.Rows {
		if a.Rows[i].Fits {
			yes[i]++
		}
	}
	o.withWorkspaces = true
	for _, jobs := range edges {
		edge, err := findEach(ctx, jobs, o)
		if err != nil {
			return err
		}
		for i := range edge.Rows {
			row := &edge.Rows[i]
			a.Rows[i].Bands.widen(&row.Need)
			if row.Fits {
				yes[i]++
			}
		}
	}
	for i := range a.Rows {
		row := &a.Rows[i]
		row.takeGreatest()
		row.Fits = yes[i] == 1+len(edges)
		if row.Within = yes[i] > 0 && !row.Fits; row.Within {
			row.Why = nil
		}
	}
	return nil
}

// takeGreatest makes the upper ends of the bands what the row needs: a job has to fit on the card that it is said to need.
func (r *Row) takeGreatest() {
	r.Reserved = r.Bands.Reserved.Greatest
	if most := r.Bands.Card.Greatest; most > r.Bytes {
		r.Bytes, r.Lowest, r.Highest, r.Below = most, most, most, nil
	}
}

// edgesOf are the edges of all jobs: of one that has fewer than another, the job itself. It sets what is requested of processes, which are
// those of the jobs.
func edgesOf(jobs []*Job, processes []Measured) ([][]*Job, error) {
	found := make([][]*Job, len(jobs))
	most := 0
	for i, j := range jobs {
		if !j.DryRun {
			continue
		}
		h, err := j.history()
		if err != nil {
			return nil, err
		}
		found[i] = h.Edges(j)
		most = max(most, len(found[i]))
		processes[i].Requested = h.Requested()
	}
	edges := make([][]*Job, most)
	for k := range edges {
		for i, j := range jobs {
			if k < len(found[i]) {
				j = found[i][k]
			}
			edges[k] = append(edges[k], j)
		}
	}
	return edges, nil
}

func (j *Job) history() (*History, error) {
	source, err := j.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	return ReadHistory(source, j.Text, nil)
}
