package fit

import (
	"cmp"
	"errors"
	"hash/maphash"
	"io"
	"math"
	"slices"

	"github.com/memprof/memprof/trace"
)

// ErrDiffer is the error of recordings that have too few requests in common.
var ErrDiffer = errors.New("the recordings have not the same sequence of requests and frees")

// leastCommon is the least share of requests that two recordings have in common.
const leastCommon = 0.9

// Resized is a process at another size of its job, as far as recordings at other sizes tell.
type Resized struct {
	// Likely makes the requests of the recording whose size is nearest, with the bytes that they likely have.
	Likely *Job
	// Others are what the recordings do not rule out either: the requests of another recording, and other bytes of those
	// that are unsure. Where none is, only the first is there. All have the PyTorch of Likely.
	Others []*Job
	Unsure Unsure
}

// Unsure are requests whose bytes at a size do not follow from the recordings.
type Unsure struct {
	Requests   int64
	Workspaces int64 // of Requests: freed before any other request or free
	// Least and Greatest bound the bytes of the request that is least certain; Origin names it, "" if not known.
	Least, Greatest int64
	Origin          string
}

// draws is how many of Resized.Others have unsure bytes drawn at random. Which of PyTorch's segments serves a request
// depends on the order of their sizes, so that the extremes do not bound the least card.
const draws = 4

// Resize finds the requests that recordings of a process at several sizes have in common, and the bytes of each at another
// size ([bytesAt]). The error is ErrDiffer, ErrSizes, or a source's.
func Resize(jobs []*Job, sizes []float64, size float64) (*Resized, error) {
	if _, err := NewLine(sizes, make([]int64, len(sizes))); err != nil {
		return nil, err
	}
	all := make([]*sequence, len(jobs))
	for i, j := range jobs {
		var err error
		if all[i], err = sequenceOf(j); err != nil {
			return nil, err
		}
		all[i].size = sizes[i]
	}
	near := Nearest(sizes, size)
	next := (near + 1) % len(sizes)
	for i := range sizes {
		if i != near && math.Abs(math.Log(sizes[i]/size)) < math.Abs(math.Log(sizes[next]/size)) {
			next = i
		}
	}
	expected, err := expect(all, near, size)
	if err != nil {
		return nil, err
	}
	others, err := expect(all, next, size)
	if err != nil {
		return nil, err
	}
	likely := func(e *expectation) int64 { return e.likely }
	r := &Resized{Likely: jobs[near].with(expected, likely), Others: []*Job{jobs[next].with(others, likely)}}
	r.Others[0].Torch = r.Likely.Torch
	if r.Unsure = all[near].unsure(jobs[near], expected); r.Unsure.Requests == 0 {
		if r.Unsure = all[next].unsure(jobs[next], others); r.Unsure.Requests == 0 {
			return r, nil
		}
	}
	r.Others = append(r.Others,
		jobs[near].with(expected, func(e *expectation) int64 { return e.least }),
		jobs[near].with(expected, func(e *expectation) int64 { return e.greatest }))
	for seed := range uint64(draws) {
		r.Others = append(r.Others, jobs[near].with(expected, func(e *expectation) int64 { return e.draw(seed) }))
	}
	return r, nil
}

// Nearest is the number of the size that is nearest by ratio; of two, the greater one.
func Nearest(sizes []float64, size float64) (near int) {
	for i := range sizes {
		off, least := math.Abs(math.Log(sizes[i]/size)), math.Abs(math.Log(sizes[near]/size))
		if off < least-1e-9 || off < least+1e-9 && sizes[i] > sizes[near] {
			near = i
		}
	}
	return near
}

// expect returns what each request of one of the sequences has at a size.
func expect(all []*sequence, of int, size float64) ([]expectation, error) {
	same := make([][]int32, len(all)) // by recording, for each request of that one: its number there, or -1
	for i, s := range all {
		var ok bool
		if same[i], ok = all[of].matches(s); !ok {
			return nil, ErrDiffer
		}
	}
	requests := make([]request, len(all[of].requested))
	for i := range requests {
		r := &requests[i]
		for recording, s := range all {
			if n := same[recording][i]; n >= 0 {
				r.workspace = r.workspace || s.workspace[n]
				r.found = append(r.found, point{size: s.size, bytes: s.requested[n]})
			}
		}
		slices.SortStableFunc(r.found, func(a, b point) int { return cmp.Compare(a.size, b.size) })
	}
	workspaces := newWorkspaces(requests, size)
	expected := make([]expectation, len(requests))
	for i := range requests {
		expected[i] = bytesAt(requests[i].found, size)
		if bytes, known := workspaces.bytes(i); bytes > 0 {
			expected[i].holds(bytes, known)
		}
	}
	return expected, nil
}

// with is the job with other bytes of its requests.
func (j *Job) with(expected []expectation, bytes func(*expectation) int64) *Job {
	requested := make([]int64, len(expected))
	for i := range expected {
		requested[i] = bytes(&expected[i])
	}
	resized := *j
	resized.Open = func() (Source, error) {
		source, err := j.Open()
		return &resizedSource{Source: source, requested: requested}, err
	}
	return &resized
}

// unsure counts the requests whose bytes do not follow.
func (s *sequence) unsure(j *Job, expected []expectation) (u Unsure) {
	for i := range expected {
		e := &expected[i]
		if e.least == e.greatest {
			continue
		}
		u.Requests++
		if s.workspace[i] {
			u.Workspaces++
		}
		if e.greatest-e.least > u.Greatest-u.Least {
			u.Least, u.Greatest, u.Origin = e.least, e.greatest, s.origin(j, i)
		}
	}
	return u
}

// sequence is the requests of a process, and its requests, frees and iterations in their order.
type sequence struct {
	requested []int64  // bytes, by request
	keys      []uint64 // equal for the same step of another recording: who requests, or whose request is freed
	requests  []int32  // the number of the request that a step is; -1 of others
	bytes     []int64  // of the request that a step makes or frees; 0 of iterations
	size      float64  // of the job
	contexts  []int32  // by request
	workspace []bool   // by request: freed before any other request or free
}

func (s *sequence) origin(j *Job, request int) string {
	e := trace.Event{Kind: trace.KindAlloc, Context: s.contexts[request]}
	return originOf(&e, j.Text(e.Context))
}

// matches returns for each request the same one of another sequence, or -1. ok is false if too few are there.
func (s *sequence) matches(other *sequence) (numbers []int32, ok bool) {
	match, ok := align(s.keys, other.keys)
	if !ok {
		return nil, false
	}
	realign(s.keys, other.keys, match, func(x, y int) bool {
		_, follows := law(point{s.size, s.bytes[x]}, point{other.size, other.bytes[y]})
		return follows
	})
	numbers = slices.Repeat([]int32{-1}, len(s.requested))
	common := 0
	for i, request := range s.requests {
		if request >= 0 && match[i] >= 0 {
			numbers[request] = other.requests[match[i]]
			common++
		}
	}
	return numbers, float64(common) >= leastCommon*float64(max(len(s.requested), len(other.requested)))
}

var keySeed = maphash.MakeSeed()

func sequenceOf(j *Job) (*sequence, error) {
	source, err := j.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	s := &sequence{}
	origins, live := map[int32]uint64{}, map[int64]int{} // by context; the steps of live requests, by address
	iteration, begun := 0, []int{}                       // in which each step was
	step := func(key uint64, request int, bytes int64) {
		s.keys, s.requests, s.bytes, begun = append(s.keys, key), append(s.requests, int32(request)), append(s.bytes, bytes), append(begun, iteration)
	}
	for {
		batch, err := source.Next()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range batch.Len() {
			switch batch.Kind[i] {
			case trace.KindAlloc:
				origin, known := origins[batch.Context[i]]
				if !known {
					e := batch.Event(i)
					origin = maphash.String(keySeed, originOf(&e, j.Text(e.Context))) &^ 7
					origins[e.Context] = origin
				}
				live[batch.Addr[i]] = len(s.keys)
				step(origin, len(s.requested), batch.Requested[i])
				s.requested, s.contexts, s.workspace = append(s.requested, batch.Requested[i]), append(s.contexts, batch.Context[i]), append(s.workspace, false)
			case trace.KindFree:
				of, ok := live[batch.Addr[i]]
				if !ok {
					continue
				}
				delete(live, batch.Addr[i])
				switch { // requests that live longer are others
				case of == len(s.keys)-1:
					s.keys[of] |= 1
					s.workspace[s.requests[of]] = true
				case begun[of] == iteration:
					s.keys[of] |= 2
				}
				step(s.keys[of]|4, -1, s.bytes[of])
			case trace.KindIteration:
				iteration++
				step(0, -1, 0)
			}
		}
	}
}

// resizedSource has other sizes of requests.
type resizedSource struct {
	Source
	requested []int64 // of the requests to come
}

func (s *resizedSource) Next() (*trace.Batch, error) {
	batch, err := s.Source.Next()
	if err != nil {
		return nil, err
	}
	resized := *batch
	resized.Requested = slices.Clone(batch.Requested)
	for i := range batch.Len() {
		if batch.Kind[i] == trace.KindAlloc {
			resized.Requested[i], s.requested = s.requested[0], s.requested[1:]
		}
	}
	return &resized, nil
}
