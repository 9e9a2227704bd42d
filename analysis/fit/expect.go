package fit

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
)

// How many bytes a request has at another size follows from two recordings where it is a tensor: as many at each size, or
// in proportion to it or its square. Where it follows none of these laws there are three guesses: on the line through both,
// and in proportion to each. A tensor of two parts is on the line. A workspace's bytes follow from its tensors ([workspaces]).
// How far the guesses are apart is also how far off all of them may be; but more bytes than at a greater size, or fewer than at
// a smaller one, are not expected.

// point is what a request has in one recording.
type point struct {
	size  float64
	bytes int64
}

// expectation is what a request has at another size, in bytes.
type expectation struct {
	least, likely, greatest int64
	seed                    uint64 // equal for requests that were equal in the recordings
}

// exact is how far bytes may be off a law, as a share of them, and leastUnsure are bytes below which it does not matter.
const (
	exact       = 0.001
	leastUnsure = 1 << 20
)

// law returns the power of the size that the bytes are in proportion to: 0, 1 or 2.
func law(a, b point) (power int, follows bool) {
	for power := range 3 {
		if math.Abs(a.at(b.size, power)-float64(b.bytes)) <= exact*float64(b.bytes) {
			return power, true
		}
	}
	return 0, false
}

// at is what bytes in proportion to a power of the size are at another one.
func (p point) at(size float64, power int) float64 {
	return float64(p.bytes) * math.Pow(size/p.size, float64(power))
}

// line is what bytes on the line through two points are at another size.
func (p point) line(q point, size float64) float64 {
	return float64(p.bytes) + float64(q.bytes-p.bytes)*(size-p.size)/(q.size-p.size)
}

// bracketOf returns two points, sorted by size, between which a size lies, or the two next to it on its side.
func bracketOf(found []point, size float64) (low, high point) {
	at := 1
	for at < len(found)-1 && found[at].size < size {
		at++
	}
	return found[at-1], found[at]
}

// bytesAt expects the bytes of a request at a size, from one or more recordings that have it, by size. What only one of them
// has may not be there at all, or grows in proportion.
func bytesAt(found []point, size float64) expectation {
	for _, p := range found {
		if p.size == size || p.bytes == 0 {
			return certain(float64(p.bytes))
		}
	}
	if len(found) == 1 {
		grown := found[0].at(size, 1)
		return unsure(found, 1, grown, grown)
	}
	low, high := bracketOf(found, size)
	if power, follows := law(low, high); follows {
		return certain(high.at(size, power))
	}
	line := low.line(high, size)
	guesses := []float64{line, low.at(size, 1), high.at(size, 1)}
	slices.Sort(guesses)
	apart := guesses[2] - guesses[0]
	least, greatest := guesses[0]-apart, guesses[2]+apart
	if high.bytes >= low.bytes {
		if size > low.size {
			least = max(least, float64(low.bytes))
		}
		if size > high.size {
			least = max(least, float64(high.bytes))
		}
		if size < high.size {
			greatest = min(greatest, float64(high.bytes))
		}
		if size < low.size {
			greatest = min(greatest, float64(low.bytes))
		}
	}
	return unsure(found, max(1, least), line, greatest)
}

func certain(bytes float64) expectation {
	b := int64(math.Round(bytes))
	return expectation{least: b, likely: b, greatest: b}
}

func unsure(found []point, least, likely, greatest float64) expectation {
	likely = max(1, likely)
	if greatest < leastUnsure {
		return certain(likely)
	}
	e := expectation{least: int64(least), likely: int64(math.Round(min(max(likely, least), greatest))), greatest: int64(greatest)}
	h := fnv.New64a()
	for _, p := range found {
		for shift := 0; shift < 64; shift += 8 {
			_, _ = h.Write([]byte{byte(p.bytes >> shift)}) // a hash.Hash returns no error
		}
	}
	e.seed = h.Sum64()
	return e
}

// holds takes the likely bytes from what a workspace holds. Where the bytes nearly follow a law, they are replaced only if
// it is known what the workspace holds: a difference of less than 0.1 % decides which segment serves it.
func (e *expectation) holds(likely int64, known bool) {
	certain := e.least == e.greatest
	switch {
	case certain && known:
		e.least, e.likely, e.greatest = likely, likely, likely
	case !certain:
		e.least, e.likely, e.greatest = min(e.least, likely), likely, max(e.greatest, likely)
	}
}

// draw is one of the bytes that a request may have; requests that were equal draw the same.
func (e *expectation) draw(seed uint64) int64 {
	return e.least + int64(rand.New(rand.NewPCG(seed, e.seed)).Float64()*float64(e.greatest-e.least))
}
