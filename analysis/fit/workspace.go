package fit

import (
	"math"
	"slices"
)

// A convolution's workspace holds copies of its tensors in the layout that cuDNN's kernel wants: of the input and the output, which
// grow with the size, and of the weights, which do not. Some kernels use scratch memory beside these, at some sizes only. The
// tensors are requests shortly before the workspace's. So the sums of one or two of them are tried as the part that grows: the right
// sum leaves a rest that is equal in the recordings, or that has the bytes of a request that does not grow.
//
// Kernels align by odd numbers of bytes, which differ. So where no sum is explained, two recordings whose bytes differ by a
// multiple of 512 had the same kernel, and the bytes at another size are on the line through both.
//
// cuDNN chooses a kernel by the tensors' shapes. So where the recordings have another workspace with as many bytes of copies as
// this one has at the size that is asked about, and with the same rest, its bytes are taken, scratch memory included.

const (
	nearby  = 8    // requests before a workspace's that may be of its tensors, other workspaces not counted
	padding = 1024 // bytes; less than that is of alignment, and differs by kernel
	odd     = 512  // bytes; the tensors of two recordings differ by multiples of it
)

// request is one of a sequence, as the recordings have it.
type request struct {
	found     []point // by size
	workspace bool    // freed before any other request or free, in some recording
}

// grows returns the power of the size that the bytes are in proportion to; ok is false where they follow no law, or only one
// recording has the request.
func (r *request) grows() (power int, ok bool) {
	for i := 1; i < len(r.found); i++ {
		p, follows := law(r.found[0], r.found[i])
		if !follows || i > 1 && p != power {
			return 0, false
		}
		power = p
	}
	return power, len(r.found) > 1
}

// held is what a workspace holds.
type held struct {
	perUnit float64 // bytes of copies that grow, for one unit of the size
	rest    float64 // all other bytes, in the recording nearest in size of those where the rest is explained, or of all
	known   bool    // the rest is explained in one recording or more
}

func (h *held) at(size float64) int64 { return int64(math.Round(h.perUnit*size + h.rest)) }

// shape stands for the tensors' shapes, by which cuDNN chooses a kernel and which no recording has: KiB of copies and of the
// rest, and the laws of the requests before and after. The laws distinguish forward, the gradient of the input and that of the
// weights.
type shape struct {
	copies, rest  int64
	before, after int
}

// workspaces are those of a sequence.
type workspaces struct {
	requests  []request
	constants []int64 // bytes of requests that do not grow, sorted; 0 is one of them
	size      float64 // that is asked about
	held      map[int]*held
	recorded  map[shape]int64 // bytes; -1 where two differ
}

func newWorkspaces(requests []request, size float64) *workspaces {
	w := &workspaces{requests: requests, constants: []int64{0}, size: size, held: map[int]*held{}, recorded: map[shape]int64{}}
	for i := range requests {
		if power, ok := requests[i].grows(); ok && power == 0 {
			w.constants = append(w.constants, requests[i].found[0].bytes)
		}
	}
	slices.Sort(w.constants)
	w.constants = slices.Compact(w.constants)
	for i := range requests {
		if r := &requests[i]; r.workspace && len(r.found) > 1 && r.found[len(r.found)-1].bytes >= leastUnsure {
			w.add(i)
		}
	}
	return w
}

// add finds what a workspace holds and notes its shape at each recorded size.
func (w *workspaces) add(i int) {
	h := w.look(i)
	if h == nil {
		return
	}
	w.held[i] = h
	if !h.known {
		return
	}
	for _, p := range w.requests[i].found {
		s := w.shape(i, h, p.size)
		if bytes, seen := w.recorded[s]; !seen {
			w.recorded[s] = p.bytes
		} else if abs(bytes-p.bytes) >= padding {
			w.recorded[s] = -1
		}
	}
}

func (w *workspaces) shape(i int, h *held, size float64) shape {
	kind := func(i int) int {
		if i < 0 || i == len(w.requests) {
			return -1
		}
		power, ok := w.requests[i].grows()
		if !ok {
			return -1
		}
		return power
	}
	return shape{int64(math.Round(h.perUnit * size / padding)), int64(h.rest / padding), kind(i - 1), kind(i + 1)}
}

// bytes returns the bytes that a workspace likely has; 0 where no tensors are found for it, or where [bytesAt] knows them, since
// the size was recorded or the bytes follow a law to the KiB. known is false where no recording explains the rest.
func (w *workspaces) bytes(i int) (likely int64, known bool) {
	h, found := w.held[i], w.requests[i].found
	if h == nil || slices.ContainsFunc(found, func(p point) bool { return p.size == w.size }) {
		return 0, false
	}
	low, high := bracketOf(found, w.size)
	if low.follows(high, padding) {
		return 0, false
	}
	if line := low.line(high, w.size); !h.known && (high.bytes-low.bytes)%odd == 0 && line >= 1 {
		return int64(math.Round(line)), true
	}
	if bytes := w.recorded[w.shape(i, h, w.size)]; h.known && bytes > 0 {
		return bytes, true
	}
	return h.at(w.size), h.known
}

// tensors are the bytes, for one unit of the size, of tensors before a workspace, nearest first.
func (w *workspaces) tensors(i int) (perUnit []float64) {
	for i, left := i-1, nearby; i >= 0 && left > 0; i-- {
		r := &w.requests[i]
		if r.workspace {
			continue
		}
		left--
		bytes := float64(r.found[0].bytes) / r.found[0].size
		if power, ok := r.grows(); ok && power == 1 && !slices.Contains(perUnit, bytes) {
			perUnit = append(perUnit, bytes)
		}
	}
	return perUnit
}

// look finds the sum of one or two tensors whose rest is explained in most recordings; of several, the one whose rests differ
// least. It returns nil where no sum fits.
func (w *workspaces) look(i int) (best *held) {
	tensors := w.tensors(i)
	most, least := -1, 0.
	try := func(perUnit float64) {
		if h, explained, apart := w.explain(w.requests[i].found, perUnit); h != nil && (explained > most || explained == most && apart < least) {
			best, most, least = h, explained, apart
		}
	}
	for second := range tensors {
		for first := range second + 1 {
			try(tensors[first] + tensors[second])
		}
		try(tensors[second])
	}
	return best
}

// explain returns what a workspace holds if its copies have so many bytes for one unit of the size, in how many recordings the rest is
// explained, and by how many bytes the rests differ. h is nil where a recording has fewer bytes than the copies.
func (w *workspaces) explain(found []point, perUnit float64) (h *held, explained int, apart float64) {
	rests := make([]float64, len(found))
	for i, p := range found {
		if rests[i] = float64(p.bytes) - perUnit*p.size; rests[i] < 0 {
			return nil, 0, 0
		}
	}
	var sizes, of []float64
	for i, rest := range rests {
		known := w.isConstant(rest) || slices.ContainsFunc(found, func(p point) bool {
			return p.size != found[i].size && math.Abs(float64(p.bytes)-perUnit*p.size-rest) < padding
		})
		if known {
			sizes, of = append(sizes, found[i].size), append(of, rest)
		}
	}
	explained = len(of)
	if explained == 0 {
		for i, p := range found {
			sizes, of = append(sizes, p.size), append(of, rests[i])
		}
	}
	h = &held{perUnit: perUnit, rest: of[Nearest(sizes, w.size)], known: explained > 0}
	return h, explained, slices.Max(rests) - slices.Min(rests)
}

// isConstant returns whether a request that does not grow has so many bytes, or they are less than padding.
func (w *workspaces) isConstant(bytes float64) bool {
	at, exact := slices.BinarySearch(w.constants, int64(bytes))
	return exact || at > 0 && bytes-float64(w.constants[at-1]) < padding
}

func abs(n int64) int64 { return max(n, -n) }
