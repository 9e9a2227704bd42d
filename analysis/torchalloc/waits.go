package torchalloc

// waits says when a block that was freed while another stream used it is free. That depends on how far the GPU has come when
// the next request looks, which differs from run to run.
type waits uint8

const (
	asRecorded waits = iota
	notAtAll         // the GPU is through when the block is freed
	long             // it is through at the end of the iteration, or longest requests later
)

// longest bounds the wait of jobs without iterations, in requests.
const longest = 1000

// waiting is a block that waits so many more requests.
type waiting struct {
	a        *Allocator
	block    *Block
	requests int
}

// likeliest says whether the job is the one whose sums count as PyTorch's, and not only as a bound of them.
func (j *job) likeliest() bool { return j.seed == 0 && j.waits == asRecorded }

// await counts a request, and ends the waits that were long enough.
func (j *job) await() {
	if len(j.waiting) == 0 {
		return
	}
	left := j.waiting[:0]
	for _, w := range j.waiting {
		if w.requests--; w.requests > 0 {
			left = append(left, w)
			continue
		}
		w.end()
	}
	j.waiting = left
}

// finishWaiting ends all waits.
func (j *job) finishWaiting() {
	for i := range j.waiting {
		j.waiting[i].end()
	}
	j.waiting = j.waiting[:0]
}

// end frees the block, unless the allocator had to wait for it itself.
func (w *waiting) end() {
	if w.block.State() == Waiting {
		w.a.Complete(w.block)
	}
}
