package pause

import "slices"

// Residency is what was mapped on a device in the time [Start, End]: by tag, in the order of
// Result.Cycle.Tags, and untagged. Of all moments within, At is that of the greatest sum, and Last
// the last one, which holds until the next Residency.
type Residency struct {
	Start, End int64
	At, Last   Mapped
}

// Mapped is untagged bytes, and bytes by tag; tags that came later may be missing.
type Mapped struct {
	Base int64
	Tags []int64
}

// Sum is all of it.
func (m Mapped) Sum() int64 {
	sum := m.Base
	for _, bytes := range m.Tags {
		sum += bytes
	}
	return sum
}

// residencies keeps at most limit points, in buckets of time of one width, which doubles when there
// are more.
type residencies struct {
	limit  int
	shift  uint
	points []Residency
}

func (rs *residencies) add(time, base int64, tags []int64) {
	now := Mapped{base, slices.Clone(tags)}
	if n := len(rs.points); n > 0 {
		last := &rs.points[n-1]
		time = max(time, last.End)
		if last.Start>>rs.shift == time>>rs.shift {
			last.join(&Residency{time, time, now, now})
			return
		}
	}
	rs.points = append(rs.points, Residency{time, time, now, now})
	for len(rs.points) > rs.limit {
		rs.widen()
	}
}

func (rs *residencies) widen() {
	rs.shift++
	n := 0
	for _, p := range rs.points[1:] {
		if last := &rs.points[n]; last.Start>>rs.shift == p.Start>>rs.shift {
			last.join(&p)
			continue
		}
		n++
		rs.points[n] = p
	}
	clear(rs.points[n+1:])
	rs.points = rs.points[:n+1]
}

// join adds what follows.
func (r *Residency) join(o *Residency) {
	if o.At.Sum() > r.At.Sum() {
		r.At = o.At
	}
	r.End, r.Last = o.End, o.Last
}
