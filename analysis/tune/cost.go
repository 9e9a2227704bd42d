package tune

import "time"

// The time of driver calls on one handle, measured on an H200 with driver 580.159.04 on handles of 2 MiB.
const (
	CostHandle  = 2 << 20 // bytes
	CostCreate  = 7 * time.Microsecond
	CostMap     = 600 * time.Nanosecond
	CostAccess  = 19 * time.Microsecond
	CostUnmap   = 13 * time.Microsecond
	CostRelease = 9 * time.Microsecond
)

// calls counts driver calls.
type calls struct {
	mapHandles, unmapHandles int64
	movedHandles             int64 // handles that were mapped at another address, their old mapping staying
	oldMappings              int64 // old mappings that were unmapped, since the address got another handle
}

func (c *calls) add(d *calls) {
	c.mapHandles += d.mapHandles
	c.unmapHandles += d.unmapHandles
	c.movedHandles += d.movedHandles
	c.oldMappings += d.oldMappings
}

// each returns the driver calls of one of n iterations: a handle is created, mapped and made accessible, unmapped and released.
func (c *calls) each(n float64) float64 {
	mapped := float64(c.mapHandles+c.movedHandles) / n
	return float64(c.mapHandles)/n + mapped + mapped + float64(c.unmapHandles+c.oldMappings)/n + float64(c.unmapHandles)/n
}

// handlesOf returns how many handles so many bytes have.
func handlesOf(bytes uint64) int64 { return int64((bytes + CostHandle - 1) / CostHandle) }

// timeOf returns the time that calls take.
func timeOf(d calls) time.Duration {
	return time.Duration(d.mapHandles)*(CostCreate+CostMap+CostAccess) + time.Duration(d.unmapHandles)*(CostUnmap+CostRelease) +
		time.Duration(d.movedHandles)*(CostMap+CostAccess) + time.Duration(d.oldMappings)*CostUnmap
}
