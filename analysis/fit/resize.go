package fit

import (
	"errors"
	"io"
	"math"
	"slices"

	"github.com/memprof/memprof/trace"
)

// ErrDiffer is the error of recordings whose requests and frees do not come in the same order.
var ErrDiffer = errors.New("the recordings have not the same sequence of requests and frees")

// Resize is a job at another size: it makes the requests of the recording whose size is nearest, each as large as
// the line through its sizes in all recordings says. The error is ErrDiffer, ErrSizes, or a source's.
func Resize(jobs []*Job, sizes []float64, size float64) (*Job, error) {
	var all []*sequence
	for _, j := range jobs {
		s, err := sequenceOf(j)
		if err != nil {
			return nil, err
		}
		if len(all) > 0 && !slices.Equal(all[0].order, s.order) {
			return nil, ErrDiffer
		}
		all = append(all, s)
	}
	requested := make([]int64, len(all[0].requested))
	bytes := make([]int64, len(all))
	for i := range requested {
		for k, s := range all {
			bytes[k] = s.requested[i]
		}
		line, err := NewLine(sizes, bytes)
		if err != nil {
			return nil, err
		}
		requested[i] = max(1, line.At(size))
		if slices.Max(bytes) == 0 {
			requested[i] = 0
		}
	}
	near := 0
	for i := range sizes {
		if math.Abs(sizes[i]-size) < math.Abs(sizes[near]-size) {
			near = i
		}
	}
	resized := *jobs[near]
	resized.Open = func() (Source, error) {
		source, err := jobs[near].Open()
		return &resizedSource{Source: source, requested: requested}, err
	}
	return &resized, nil
}

// sequence is the requests and frees of a process.
type sequence struct {
	requested []int64 // bytes, by request
	order     []int32 // -1 for a request, or the number of the request that is freed
}

func sequenceOf(j *Job) (*sequence, error) {
	source, err := j.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	s, live := &sequence{}, map[int64]int32{}
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
				live[batch.Addr[i]] = int32(len(s.requested))
				s.requested, s.order = append(s.requested, batch.Requested[i]), append(s.order, -1)
			case trace.KindFree:
				if of, ok := live[batch.Addr[i]]; ok {
					s.order = append(s.order, of)
				}
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
