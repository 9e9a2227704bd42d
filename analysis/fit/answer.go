package fit

import (
	"context"
	"strings"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace"
)

// Options of Find.
type Options struct {
	Allocators []Allocator
	Card       int64 // bytes of the card that is asked about; 0: none
	Headroom   int64 // bytes of each device that stay free
	// Quick bisects, as if each card larger than one that serves did so too, and tries none without workspaces.
	Quick          bool
	withWorkspaces bool // tries none without workspaces
}

// Answer is what a whole job needs.
type Answer struct {
	Processes []Measured
	Rows      []Row // by allocator, in the order of Options
}

// Measured is what the recording says of a process.
type Measured struct {
	Name string
	Survey
	Requested plain.Band // of a dry run: the greatest sum of requested bytes
}

// Row is the least card of a job under one allocator: that of the process that needs most.
type Row struct {
	Need
	Bands  Bands
	Fits   bool     // on Options.Card, whatever a dry run does not know
	Within bool     // that decides whether it fits
	Why    *Failure // the request that fails on it; nil if it fits or that decides, and where several processes share a card
}

// Failure is a refusal, with what the recording says of its event.
type Failure struct {
	accounting.Refusal
	Context   string // of the request; the library of another library's allocation
	Iteration int64  // that it is in, from 0; -1 without iterations
}

// Find answers for all processes of a job. Each is on a card of its own, unless the recording says that several were
// on one: their cards add up.
func Find(ctx context.Context, jobs []*Job, o Options) (*Answer, error) {
	answer, err := findEach(ctx, jobs, o)
	if err != nil {
		return nil, err
	}
	edges, err := edgesOf(jobs, answer.Processes)
	if err == nil && len(edges) > 0 {
		err = answer.bound(ctx, edges, o)
	}
	return answer, err
}

func findEach(ctx context.Context, jobs []*Job, o Options) (*Answer, error) {
	answer, all := &Answer{}, &cardNeeds{sums: map[place]*cardNeed{}}
	for _, j := range jobs {
		s, err := Look(j)
		if err != nil {
			return nil, err
		}
		answer.Processes = append(answer.Processes, Measured{Name: j.Name, Survey: *s})
		needs, err := Least(ctx, j, s, o)
		if err != nil {
			return nil, err
		}
		for _, n := range needs {
			all.add(j, s, n)
		}
		j.survey, s.followed = nil, nil // others come, which need memory
	}
	for _, a := range o.Allocators {
		most := all.most(a)
		if most == nil {
			continue
		}
		row, err := most.row(ctx, o)
		if err != nil {
			return nil, err
		}
		answer.Rows = append(answer.Rows, *row)
	}
	return answer, nil
}

// place is a card of a job under one allocator.
type place struct {
	card      string
	allocator Allocator
}

// cardNeed is what the processes of one card need together.
type cardNeed struct {
	Need
	job    *Job // of the only process; nil where several share the card
	survey *Survey
}

// cardNeeds are what all cards of a job need, in the order of their first processes.
type cardNeeds struct {
	sums  map[place]*cardNeed
	order []place
}

// add adds what a process needs under one allocator. Without a recorded card it has one to itself.
func (c *cardNeeds) add(j *Job, s *Survey, n Need) {
	at := place{j.Card, n.Allocator}
	if at.card == "" {
		at.card = "\x00" + j.Name
	}
	if sum := c.sums[at]; sum != nil {
		sum.Need.add(&n)
		sum.job, sum.survey = nil, nil
		return
	}
	c.order = append(c.order, at)
	c.sums[at] = &cardNeed{n, j, s}
}

// most returns the card that needs most under an allocator, the first of equals; nil without one.
func (c *cardNeeds) most(a Allocator) (most *cardNeed) {
	for _, at := range c.order {
		if n := c.sums[at]; at.allocator == a && (most == nil || n.Bytes > most.Bytes) {
			most = n
		}
	}
	return most
}

// row says whether the card that is asked about suffices, and which request fails if it does not.
func (n *cardNeed) row(ctx context.Context, o Options) (*Row, error) {
	row := &Row{Need: n.Need, Bands: bandsOf(&n.Need), Fits: n.Bytes <= o.Card}
	if o.Card <= 0 || o.Card >= n.Highest || n.job == nil {
		return row, nil
	}
	refused, err := On(ctx, n.job, n.survey, n.Allocator, o.Card, o.Headroom)
	if err != nil {
		return nil, err
	}
	if row.Fits = refused == nil; row.Fits {
		return row, nil
	}
	row.Why, err = describe(n.job, refused)
	return row, err
}

// add adds what another process needs on the same card.
func (n *Need) add(m *Need) {
	if n.Without+m.Without > 0 {
		n.Without = n.atLeast() + m.atLeast()
	}
	n.Process += ", " + m.Process
	n.Bytes, n.Lowest, n.Highest, n.Below = n.Bytes+m.Bytes, n.Lowest+m.Lowest, n.Highest+m.Highest, nil
	n.Requested, n.Reserved = n.Requested+m.Requested, n.Reserved+m.Reserved
}

// atLeast is the card below which the job does not complete even without workspaces.
func (n *Need) atLeast() int64 {
	if n.Without > 0 {
		return n.Without
	}
	return n.Bytes
}

// describe looks the event of a refusal up.
func describe(j *Job, r *accounting.Refusal) (*Failure, error) {
	source, err := j.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	f := &Failure{Refusal: *r, Iteration: -1}
	marks, found := int64(0), false
	for e, err := range trace.Events(source) {
		if err != nil {
			return nil, err
		}
		switch {
		case e.Kind == trace.KindIteration && found:
			f.Iteration = marks
			return f, nil
		case e.Kind == trace.KindIteration:
			marks++
		case e.Seq == r.Seq && !found:
			found, f.Context = true, originOf(e, j.Text(e.Context))
			if e.Kind != trace.KindAlloc && e.Kind != trace.KindRestore {
				f.Bytes = max(e.Requested, e.Provided)
			}
			if marks > 0 {
				f.Iteration = marks
			}
		}
	}
	return f, nil
}

// originOf names the origin of an event: a module, a phase, a library.
func originOf(e *trace.Event, text string) string {
	c := trace.ParseContext(e.Kind, text)
	for _, name := range []string{"module", "library", "name", "phase"} {
		if value := c.Get(name); value != "" {
			return value
		}
	}
	if c.Get("stack") != "" {
		return "" // a number, which says nothing
	}
	return strings.TrimSpace(c.Name())
}
