package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/memprof/memprof/trace"
)

// maxOwnReadings bounds the stretches that a process's own readings are kept as. Of more,
// those around the peak so far and the newest are kept: books are closed nowhere else.
const maxOwnReadings = 4096

// ownReading takes what the process itself read of a device's use. The readings of an
// arena's growth are decisions of its policy and come from within requests.
func (a *analyzer) ownReading(e *trace.Event) {
	_, used := e.DeviceMemory()
	if e.Arena != trace.NoArena || e.Device < 0 || used < 0 {
		return
	}
	d := a.deviceOf(e.Device)
	s := &d.beside
	s.read = s.read.add(e.Time, used)
	s.readPeak = max(s.readPeak, used)
	if len(s.read) > maxOwnReadings {
		peak := d.Peak.Time
		if d.MaxR == 0 {
			peak = s.greatest.At.Time
		}
		s.read = s.read.thin(peak)
	}
}

// thin leaves half of the stretches: those around a time, and the last.
func (c Course) thin(around int64) Course {
	const part = maxOwnReadings / 4
	after, _ := slices.BinarySearchFunc(c, around, func(s stretch, time int64) int { return cmp.Compare(s.First, time) })
	last := len(c) - part
	from := max(0, min(after-part/2, last-part))
	return slices.Concat(c[from:from+part], c[last:])
}

// closeByOwn closes the books of a process by its own readings. They tell the use of all on
// the device, and of several processes none knows what the others have.
func (m *Member) closeByOwn(members []Member) {
	h := &m.Device.Holdings
	if len(h.Read) == 0 {
		return
	}
	sharers := 0
	for i := range members {
		if o := &members[i]; o.uses() && o.sameCard(m) {
			sharers++
		}
	}
	b := m.Device.Books
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
	if m.Result == o.Result {
		return m.Device == o.Device
	}
	if a, b := m.uuid(), o.uuid(); a != "" && b != "" {
		return a == b
	}
	return m.GPU < 0 || o.GPU < 0 || m.GPU == o.GPU
}

// uuid is the driver's name for the device, which its arenas tell; "" where it has none.
func (m *Member) uuid() string {
	for i := range m.Result.Arenas {
		if a := &m.Result.Arenas[i]; a.Device == m.Device.Device && strings.Trim(a.Options["uuid"], "GPU-0") != "" {
			return a.Options["uuid"]
		}
	}
	return ""
}
