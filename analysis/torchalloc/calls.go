package torchalloc

// steadyFrom is the first steady iteration, counted from 0, as in package tune.
const steadyFrom = 4

// calls counts what a job calls the driver for: segments, and pages of expandable ones.
type calls struct {
	ended                int64  // iterations
	maps, unmaps         uint64 // when the last one ended
	mapsFrom, unmapsFrom uint64 // when the first steady one began
}

// mark ends an iteration. quiet says that nothing came since the last one: a recording may have millions of those.
func (j *job) mark(quiet bool) {
	quiet = quiet && len(j.waiting) == 0
	j.finishWaiting()
	c := &j.calls
	c.ended++
	if !quiet {
		c.maps, c.unmaps = 0, 0
		for _, d := range j.devices {
			s := &d.stats
			c.maps, c.unmaps = c.maps+s.DeviceAllocs+s.PagesMapped, c.unmaps+s.DeviceFrees+s.PagesUnmapped
		}
	}
	if c.ended <= steadyFrom {
		c.mapsFrom, c.unmapsFrom = c.maps, c.unmaps
	}
}

// means are those of the steady iterations; 0 where there is none.
func (c *calls) means() (maps, unmaps float64) {
	n := c.ended - steadyFrom
	if n <= 0 {
		return 0, 0
	}
	return float64(c.maps-c.mapsFrom) / float64(n), float64(c.unmaps-c.unmapsFrom) / float64(n)
}
