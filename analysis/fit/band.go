package fit

import (
	"context"

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
func (h *History) withGuesses(most bool) *edit {
	e := h.edit()
	for i := range h.guesses {
		switch g := &h.guesses[i]; {
		case g.request >= 0 && most:
			e.resize(g.request, g.most)
		case g.request >= 0:
			e.drop(g.request)
		case most:
			addr := e.newCopy(g.result, g.at+1)
			e.ops[len(e.ops)-1].bytes = g.most
			e.ops = append(e.ops, op{before: g.at + 1, frees: true, block: g.result, addr: addr, bytes: g.most})
		}
	}
	return e
}

// Requested is the greatest sum of requested bytes, from the least to the most that workspaces of unknown sizes leave open.
func (h *History) Requested() plain.Band {
	if len(h.guesses) == 0 {
		return plain.BandOf(h.most)
	}
	return plain.BandOf(h.most, h.withGuesses(false).requested(), h.withGuesses(true).requested())
}

// Edges are the job with the least and with the most bytes of each workspace whose size a dry run does not know; none where it knows all.
func (h *History) Edges(j *Job) []*Job {
	if len(h.guesses) == 0 {
		return nil
	}
	return []*Job{h.withGuesses(false).job(j), h.withGuesses(true).job(j)}
}

// Bands are what workspaces of unknown sizes leave open of a job's needs. They have no width where all sizes are known.
type Bands struct {
	Reserved, Card plain.Band
}

// widen adds what the job needs otherwise.
func (b *Bands) widen(n *Need) {
	b.Reserved = plain.BandOf(n.Reserved, b.Reserved.Least, b.Reserved.Greatest)
	b.Card = plain.BandOf(n.Bytes, b.Card.Least, b.Card.Greatest)
}

func bandsOf(n *Need) Bands { return Bands{plain.BandOf(n.Reserved), plain.BandOf(n.Bytes)} }

// bound adds what workspaces of unknown sizes leave open. edges are the jobs with the least of their bytes, and with the most.
func (a *Answer) bound(ctx context.Context, edges [2][]*Job, o Options) error {
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
		row.Fits = yes[i] == 1+len(edges)
		if row.Within = yes[i] > 0 && !row.Fits; row.Within {
			row.Why = nil
		}
	}
	return nil
}

// edgesOf are the edges of all jobs: of one that knows all sizes, the job itself. ok is false where all jobs do. It sets what is requested of
// processes, which are those of the jobs.
func edgesOf(jobs []*Job, processes []Measured) (edges [2][]*Job, ok bool, err error) {
	for i, j := range jobs {
		both := []*Job{j, j}
		if j.DryRun {
			h, err := j.history()
			if err != nil {
				return edges, false, err
			}
			if found := h.Edges(j); found != nil {
				both, ok = found, true
				processes[i].Requested = h.Requested()
			}
		}
		edges[0], edges[1] = append(edges[0], both[0]), append(edges[1], both[1])
	}
	return edges, ok, nil
}

func (j *Job) history() (*History, error) {
	source, err := j.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	return ReadHistory(source, j.Text, nil)
}
