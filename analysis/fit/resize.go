package fit

import (
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

// Resize is a job at another size: it makes the requests of the recording whose size is nearest, each as large as
// the line through its sizes in all recordings says. A request that no other recording has, like a workspace of an
// algorithm that is taken from some size on, grows in proportion to the size. The error is ErrDiffer, ErrSizes, or a source's.
func Resize(jobs []*Job, sizes []float64, size float64) (*Job, error) {
	return ResizeFrom(jobs, sizes, size, Nearest(sizes, size))
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

// ResizeFrom is Resize with the requests of jobs[near]. At the size of another recording it differs from that recording by
// what lines cannot know: requests that only one of them makes, and those between which the allocator chooses by size.
func ResizeFrom(jobs []*Job, sizes []float64, size float64, near int) (*Job, error) {
	if _, err := NewLine(sizes, make([]int64, len(sizes))); err != nil {
		return nil, err
	}
	all := make([]*sequence, len(jobs))
	for i, j := range jobs {
		var err error
		if all[i], err = sequenceOf(j); err != nil {
			return nil, err
		}
	}
	same := make([][]int32, len(all)) // by recording, for each request of the nearest: its number there, or -1
	for i, s := range all {
		var ok bool
		if same[i], ok = all[near].matches(s); !ok {
			return nil, ErrDiffer
		}
	}
	requested := make([]int64, len(all[near].requested))
	for r, bytes := range all[near].requested {
		if bytes == 0 {
			continue
		}
		var at []float64
		var found []int64
		for i := range all {
			if n := same[i][r]; n >= 0 {
				at, found = append(at, sizes[i]), append(found, all[i].requested[n])
			}
		}
		if line, err := NewLine(at, found); err == nil {
			requested[r] = max(1, line.At(size))
		} else {
			requested[r] = max(1, int64(math.Round(float64(bytes)*size/sizes[near])))
		}
	}
	resized := *jobs[near]
	resized.Open = func() (Source, error) {
		source, err := jobs[near].Open()
		return &resizedSource{Source: source, requested: requested}, err
	}
	return &resized, nil
}

// sequence is the requests of a process, and its requests, frees and iterations in their order.
type sequence struct {
	requested []int64  // bytes, by request
	keys      []uint64 // equal for the same step of another recording: who requests, or whose request is freed
	requests  []int32  // the number of the request that a step is; -1 of others
}

// matches returns for each request the same one of another sequence, or -1. ok is false if too few are there.
func (s *sequence) matches(other *sequence) (numbers []int32, ok bool) {
	match, ok := align(s.keys, other.keys)
	if !ok {
		return nil, false
	}
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
	step := func(key uint64, request int) {
		s.keys, s.requests, begun = append(s.keys, key), append(s.requests, int32(request)), append(begun, iteration)
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
				step(origin, len(s.requested))
				s.requested = append(s.requested, batch.Requested[i])
			case trace.KindFree:
				of, ok := live[batch.Addr[i]]
				if !ok {
					continue
				}
				delete(live, batch.Addr[i])
				switch { // requests that live longer are others
				case of == len(s.keys)-1:
					s.keys[of] |= 1
				case begun[of] == iteration:
					s.keys[of] |= 2
				}
				step(s.keys[of]|4, -1)
			case trace.KindIteration:
				iteration++
				step(0, -1)
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
