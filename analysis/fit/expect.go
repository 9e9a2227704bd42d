package fit

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
)

// The bytes of a tensor at another size of the job follow from two recordings by one of three laws: they are equal, or in
// proportion to the size, or to its square. Bytes that follow no law get three guesses: on the line through both recordings,
// where a tensor of two parts lies, and in proportion to each. All guesses may be as far off as they are apart; but bytes are
// never fewer than at a smaller size nor more than at a greater one. A workspace's bytes follow from its tensors ([workspaces]).

// point is the bytes of a request in one recording.
type point struct {
	size  float64
	bytes int64
}

// expectation is the bytes of a request at another size.
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

// follows returns whether bytes follow a law and are off it by less than so many.
func (p point) follows(q point, off float64) bool {
	for power := range 3 {
		if math.Abs(p.at(q.size, power)-float64(q.bytes)) < off {
			return true
		}
	}
	return false
}

// at returns the bytes at another size if they are in proportion to a power of the size.
func (p point) at(size float64, power int) float64 {
	return float64(p.bytes) * math.Pow(size/p.size, float64(power))
}

// line returns the bytes at another size on the line through two points.
func (p point) line(q point, size float64) float64 {
	return float64(p.bytes) + float64(q.bytes-p.bytes)*(size-p.size)/(q.size-p.size)
}

// bracketOf returns the two points, of two or more that are sorted by size, between which a size lies; the two nearest if it is
// beyond all of them.
func bracketOf(found []point, size float64) (low, high point) {
	at := 1
	for at < len(found)-1 && found[at].size < size {
		at++
	}
	return found[at-1], found[at]
}

// bytesAt returns the bytes to expect of a request at a size, from the recordings that have it, sorted by size. A request that
// only one recording has may be missing at that size, or grow in proportion to it.
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

// draw returns bytes between least and greatest, at random; requests that were equal draw the same.
func (e *expectation) draw(seed uint64) int64 {
	return e.least + int64(rand.New(rand.NewPCG(seed, e.seed)).Float64()*float64(e.greatest-e.least))
}
