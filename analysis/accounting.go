package analysis

import (
	"strings"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace"
)

// otherMemory hands an event of memory that no arena served, or of the device's used memory, to the
// accounting.
func (a *analyzer) otherMemory(e *trace.Event) {
	switch e.Kind {
	case trace.KindExternalAlloc, trace.KindExternalFree:
		a.others.External(a.deviceOf(e.Device).others, e)
	case trace.KindOverhead:
		a.others.Overhead(a.deviceOf(e.Device).others, e)
	case trace.KindDeviceUsed:
		if accounting.IsOwnReading(e) {
			_, used := e.DeviceMemory()
			a.deviceOf(e.Device).others.Read(e.Time, used)
		}
	}
}

// passMoments has the accounting note the state at the moments before time.
func (a *analyzer) passMoments(time int64) {
	a.others.Pass(a.lastSeq, time, func(note func(*accounting.Device)) {
		if a.events == 0 { // before the first event nothing is this process's
			return
		}
		for _, d := range a.devices {
			note(d.others)
		}
	})
	a.moment = a.others.Next()
}

// Member is a device of a process, for [CloseBooks].
type Member struct {
	Result *Result
	Device *DeviceResult // one of Result's
	PID    int
	GPU    int   // in run.json's list; -1 if not known
	Alive  int64 // when the process was last seen, perhaps after its last event; 0 if not known
	// Private says that nobody else can have memory on the device, as where it is simulated.
	Private bool
}

// CloseBooks fills in the Books of all devices of a run; see [accounting.CloseBooks].
func CloseBooks(members []Member, readings *Readings, missing string) {
	all := make([]accounting.Member, len(members))
	for i := range members {
		m := &members[i]
		d := m.Device
		all[i] = accounting.Member{
			Process: m.Result.Process, Duration: m.Result.Duration, Device: d.Device, MaxR: d.MaxR, External: d.External,
			Holdings: &d.Holdings, UUID: m.uuid(), PID: m.PID, GPU: m.GPU, Alive: m.Alive, Private: m.Private,
		}
	}
	accounting.CloseBooks(all, readings, missing)
	for i := range all {
		members[i].Device.Books = all[i].Books
	}
}

// uuid is the driver's name for the device, which its arenas have; "" where it has none.
func (m *Member) uuid() string {
	for i := range m.Result.Arenas {
		if a := &m.Result.Arenas[i]; a.Device == m.Device.Device && strings.Trim(a.Options["uuid"], "GPU-0") != "" {
			return a.Options["uuid"]
		}
	}
	return ""
}

// ReadReadings reads all events of a run's readings; text is [trace.Strings.Text] of them.
func ReadReadings(src Source, text func(context int32) string) (*Readings, error) {
	return accounting.ReadReadings(src, text)
}
