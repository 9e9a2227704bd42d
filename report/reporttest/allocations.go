package reporttest

// Allocation is one that a page has at some of its exact events, by position.
type Allocation struct {
	From, To               int64
	Addr, Bytes, Requested int64
}

// live is the kind of a stretch that is a live allocation.
const live = 3

// Allocations decodes the live allocations of a device's exact events, as the page's script does. Bases are those of
// the arenas.
func Allocations(device map[string]any, positions int, bases []int64) (all []Allocation) {
	column := func(name string) []int64 { return device[name].([]int64) }
	unit := int64(device["unit"].(float64))
	lastAddr, lastExtra := make([]int64, len(column("arena"))), make([]int64, len(column("arena")))
	sorts := 0
	for i, sort := range column("sort") {
		at := int(sort) - 1
		if sort == 0 {
			at = sorts
			sorts++
		}
		requested := column("requested")[at]
		from, to := column("from")[i], int64(positions)
		if n := column("events")[i]; n > 0 {
			to = from + n
		}
		lastAddr[at] += column("addr")[i] * unit
		lastExtra[at] += column("extra")[i]
		if column("kind")[at] == live {
			all = append(all, Allocation{from, to, bases[column("arena")[at]] + lastAddr[at], (requested+255)/256*256 + lastExtra[at], requested})
		}
	}
	return all
}
