package accounting

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memprof/memprof/trace"
)

// MostOwnReadings bounds the stretches of a process's own readings. If there are more, those around the peak
// so far and the newest are kept: the device accounting needs no others.
const MostOwnReadings = 4096

// Read takes a device_used event without an arena: a reading that the process itself took. Readings with an
// arena are not for Read: its policy takes them during a request.
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

// IsOwnReading says whether a device_used event is such a reading.
func IsOwnReading(e *trace.Event) bool {
	_, used := e.DeviceMemory()
	return e.Arena == trace.NoArena && e.Device >= 0 && used >= 0
}

// thin keeps half of the stretches: those around a time, and the last.
func (c Course) thin(around int64) Course {
	const part = MostOwnReadings / 4
	after, _ := slices.BinarySearchFunc(c, around, func(s stretch, time int64) int { return cmp.Compare(s.First, time) })
	last := len(c) - part
	from := max(0, min(after-part/2, last-part))
	return slices.Concat(c[from:from+part], c[last:])
}

// reconcileOwnReadings compares the terms of a process with its own readings. These include all processes on the
// device, so they are used only if no other process of the run uses it.
func (m *Member) reconcileOwnReadings(members []Member) {
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
	b := m.Account
	if sharers > 1 {
		b.Missing = fmt.Sprintf("%d processes use the device and read it as a whole (%s)", sharers, b.Missing)
		return
	}
	b.Scope, b.Missing = ScopeCard, ""
	b.reconcileProcess(m, h.Read)
	b.UsedPeak = h.ReadPeak
}

// sameCard says whether two devices may be one card: it compares their UUIDs, else their places in run.json's
// list, and returns true if neither is known.
func (m *Member) sameCard(o *Member) bool {
	if m.Process == o.Process {
		return m.Device == o.Device
	}
	if m.UUID != "" && o.UUID != "" {
		return m.UUID == o.UUID
	}
	return m.GPU < 0 || o.GPU < 0 || m.GPU == o.GPU
}
