package accounting

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memprof/memprof/trace"
)

// MostOwnReadings bounds the stretches that a process's own readings are kept as. Of more,
// those around the peak so far and the newest are kept: books are closed nowhere else.
const MostOwnReadings = 4096

// Read takes a device_used event: what the process itself read of a device's use. The readings of an
// arena's growth are decisions of its policy and come from within requests.
func (d *Device) Read(time, used int64) {
	d.read = d.read.add(time, used)
	d.readPeak = max(d.readPeak, used)
	if len(d.read) > MostOwnReadings {
		peak := d.of.Peak.Time
		if d.of.MaxR == 0 {
			peak = d.greatest.At.Time
		}
		d.read = d.read.thin(peak)
	}
}

// IsOwnReading says whether a device_used event is what the process itself read of a device.
func IsOwnReading(e *trace.Event) bool {
	_, used := e.DeviceMemory()
	return e.Arena == trace.NoArena && e.Device >= 0 && used >= 0
}

// thin leaves half of the stretches: those around a time, and the last.
func (c Course) thin(around int64) Course {
	const part = MostOwnReadings / 4
	after, _ := slices.BinarySearchFunc(c, around, func(s stretch, time int64) int { return cmp.Compare(s.First, time) })
	last := len(c) - part
	from := max(0, min(after-part/2, last-part))
	return slices.Concat(c[from:from+part], c[last:])
}

// closeByOwn closes the books of a process by its own readings. They tell the use of all on
// the device, and of several processes none knows what the others have.
func (m *Member) closeByOwn(members []Member) {
	h := m.Holdings
	if len(h.Read) == 0 {
		return
	}
	sharers := 0
	for i := range members {
		if o := &members[i]; o.uses() && o.sameCard(m) {
			sharers++
		}
	}
	b := m.Books
	if sharers > 1 {
		b.Missing = fmt.Sprintf("%d processes use the device and read it as a whole (%s)", sharers, b.Missing)
		return
	}
	b.Scope, b.Missing = ScopeCard, ""
	b.closeAlone(m, h.Read)
	b.UsedPeak = h.ReadPeak
}

// sameCard says whether two devices of processes may be one card: by the name that the driver
// has for it, else by the run's list, and if that does not tell either they may.
func (m *Member) sameCard(o *Member) bool {
	if m.Process == o.Process {
		return m.Device == o.Device
	}
	if m.UUID != "" && o.UUID != "" {
		return m.UUID == o.UUID
	}
	return m.GPU < 0 || o.GPU < 0 || m.GPU == o.GPU
}
