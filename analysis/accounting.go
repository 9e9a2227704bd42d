package analysis

import (
	"strings"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace"
)

// Member is one device as one process used it, for [Reconcile].
type Member struct {
	Result *Result
	Device *DeviceResult // one of Result's
	PID    int
	GPU    int   // in run.json's list; -1 if not known
	Alive  int64 // when the process was last seen, perhaps after its last event; 0 if not known
	// Private says that no other process can have memory on the device: it is simulated.
	Private bool
	Unseen  string // why the recording has no calls of CUDA; "" if it has them
}

// Reconcile sets the Account of all devices of a run; see [accounting.Reconcile].
func Reconcile(members []Member, readings *accounting.Readings, missing string) {
	all := make([]accounting.Member, len(members))
	for i := range members {
		m := &members[i]
		d := m.Device
		all[i] = accounting.Member{
			Process: m.Result.Process, Duration: m.Result.Duration, Device: d.Device, MaxR: d.MaxR, OtherLibraries: *d.OtherLibraries,
			Holdings: &d.Holdings, UUID: m.uuid(), PID: m.PID, GPU: m.GPU, Alive: m.Alive, Private: m.Private, Unseen: m.Unseen,
		}
	}
	accounting.Reconcile(all, readings, missing)
	for i := range all {
		members[i].Device.Account = all[i].Account
	}
}

// uuid returns the driver's name for the device, from one of its arenas; "" if unknown.
func (m *Member) uuid() string {
	for i := range m.Result.Arenas {
		if a := &m.Result.Arenas[i]; a.Device == m.Device.Device && strings.Trim(a.Options["uuid"], "GPU-0") != "" {
			return a.Options["uuid"]
		}
	}
	return ""
}

// ReadReadings reads all events of a run's readings; text is [dataset.Strings.Text] of them.
func ReadReadings(src trace.Source, text func(context int32) string) (*accounting.Readings, error) {
	return accounting.ReadReadings(src, text)
}
