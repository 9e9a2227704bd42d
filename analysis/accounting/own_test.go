package accounting_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// reads adds what the process read of the card at a time, used in MiB.
func (j *ledgerJob) reads(at, used int64) {
	j.add(at, trace.Event{Kind: trace.KindDeviceUsed, Arena: trace.NoArena, Requested: 80 << 30, Provided: used * mib}, "all=1")
}

// byTime puts events added late where their times are.
func (j *ledgerJob) byTime() *ledgerJob {
	slices.SortStableFunc(j.events, func(a, b trace.Event) int { return cmp.Compare(a.Time, b.Time) })
	for i := range j.events {
		j.events[i].Seq = int64(i)
	}
	return j
}

// ownTraining is [ledgerTraining] on a card of which the driver has 600 MiB, and from the
// first reading after the peak on 5 more.
func ownTraining() *ledgerJob {
	j := ledgerTraining()
	j.reads(350, 2100)
	j.reads(850, 2100)
	j.reads(950, 2005)
	j.reads(1600, 2005)
	return j.byTime()
}

func TestAccountingByOwnReadings(t *testing.T) {
	r := ownTraining().analyze(t, "rank0", nil)
	analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0], PID: 71}}, nil, "no library")
	got := r.Devices[0].Account
	want := accounting.Account{Scope: accounting.ScopeCard, Processes: []string{"rank0"}, UsedPeak: 2100 * mib, Course: got.Course, Peak: got.Peak, End: got.End}
	assert.Diff(t, want, *got, "account")
	used := accounting.Used{Time: 350 * ms, Bytes: 2100 * mib}
	assert.That(t, len(got.Course.Times()) == 4 && got.Course.Times()[0] == used, "%+v", got.Course.Times())
	if want := (accounting.Reading{Valid: true, Used: 2100 * mib, After: 30 * ms, Steady: true}); got.Peak.Read != want || got.Peak.Sum() != 1500*mib || got.Peak.Rest != 600*mib || got.Peak.UnexplainedUnknown != accounting.WhyNotOurs {
		t.Errorf("peak %+v", got.Peak)
	}
	if want := (accounting.Reading{Valid: true, Used: 2005 * mib, Steady: true}); got.End.Read != want || got.End.Sum() != 1400*mib || got.End.Rest != 605*mib {
		t.Errorf("end %+v", got.End)
	}
}

// A reading of the whole card says nothing of one process where there may be two.
func TestOwnReadingsOfSharedCards(t *testing.T) {
	const none = "no library"
	shared := "2 processes use the device and read it as a whole (" + none + ")"
	tests := []struct {
		name     string
		gpus     [2]int
		uuids    [2]string
		idle     bool // the second process has nothing on its device
		readings *accounting.Readings
		scope    accounting.Scope
		missing  string
	}{
		{name: "one card by the list", missing: shared, scope: accounting.ScopeProcess},
		{name: "two by the list", gpus: [2]int{0, 1}, scope: accounting.ScopeCard},
		{name: "not in the list", gpus: [2]int{-1, -1}, missing: shared, scope: accounting.ScopeProcess},
		{name: "one of them not in the list", gpus: [2]int{0, -1}, missing: shared, scope: accounting.ScopeProcess},
		{name: "one by the driver", gpus: [2]int{0, 1}, uuids: [2]string{"GPU-07", "GPU-07"}, missing: shared, scope: accounting.ScopeProcess},
		{name: "two by the driver", uuids: [2]string{"GPU-07", "GPU-08"}, scope: accounting.ScopeCard},
		{name: "no names", uuids: [2]string{"GPU-00", "GPU-00-00"}, missing: shared, scope: accounting.ScopeProcess},
		{name: "the other uses none", idle: true, scope: accounting.ScopeCard},
		{name: "read from outside", gpus: [2]int{0, 1}, readings: readingsOf(t, "0 all=1 0 2000", "0 all=1 350 3500", "1 all=1 0 0"), scope: accounting.ScopeDevice},
		{name: "not read from outside", gpus: [2]int{2, 2}, readings: readingsOf(t, "0 all=1 0 2000"), missing: "the device's used memory was not read", scope: accounting.ScopeProcess},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var members []analysis.Member
			for i, name := range []string{"rank0", "rank1"} {
				r := ownTraining().analyze(t, name, test.readings)
				if test.uuids[i] != "" {
					r.Arenas[0].Options["uuid"] = test.uuids[i]
				}
				if test.idle && i == 1 {
					r.Devices[0] = analysis.DeviceResult{Memory: &analysis.Memory{}, OtherLibraries: &accounting.OtherLibraries{}}
				}
				members = append(members, analysis.Member{Result: r, Device: &r.Devices[0], PID: 71 + i, GPU: test.gpus[i]})
			}
			missing := none
			if test.readings != nil {
				missing = ""
			}
			analysis.Reconcile(members, test.readings, missing)
			b := members[0].Device.Account
			assert.That(t, b.Scope == test.scope && b.Missing == test.missing && b.Peak.Read.Valid == (test.missing == ""),
				"scope %q, missing %q, read %+v", b.Scope, b.Missing, b.Peak.Read)
		})
	}
}

// Two devices of one process are two cards, even where nobody knows which.
func TestOwnReadingsOfTwoDevices(t *testing.T) {
	j := ownTraining()
	for _, e := range slices.Clone(j.events) {
		e.Device, e.Addr = 1, e.Addr+1<<45
		if e.Arena != trace.NoArena {
			e.Arena += 7
		}
		j.events = append(j.events, e)
	}
	r := j.byTime().analyze(t, "rank0", nil)
	analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0], GPU: -1}, {Result: r, Device: &r.Devices[1], GPU: -1}}, nil, "no library")
	for _, d := range r.Devices {
		assert.That(t, d.Account.Scope == accounting.ScopeCard && d.Account.Peak.Rest == 600*mib && d.Account.End.Rest == 605*mib,
			"device %d: %+v", d.Device, d.Account)
	}
}

// A reading for an arena's growth, and one that cannot be, are none for the account.
func TestOwnReadingsPassedOver(t *testing.T) {
	j := ledgerTraining()
	for _, e := range []trace.Event{
		{Kind: trace.KindDeviceUsed, Requested: 80 << 30, Provided: mib}, // of arena 0
		{Kind: trace.KindDeviceUsed, Arena: trace.NoArena, Provided: -1},
		{Kind: trace.KindDeviceUsed, Arena: trace.NoArena, Device: -1, Provided: mib},
	} {
		j.add(1600, e, "all=1")
	}
	r := j.analyze(t, "rank0", nil)
	analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0]}}, nil, "no library")
	d := &r.Devices[0]
	if len(r.Devices) != 1 || d.Holdings.Read != nil || d.Holdings.ReadPeak != 0 || d.Account.Missing != "no library" || d.Account.Scope != accounting.ScopeProcess {
		t.Errorf("%d devices, read %v, greatest %d, account %+v", len(r.Devices), d.Holdings.Read, d.Holdings.ReadPeak, d.Account)
	}
}

// Of ever so many readings those are kept that the account are closed by, and the greatest
// number.
func TestOwnReadingsAreBounded(t *testing.T) {
	const after = 30_000
	j := ledgerTraining()
	for i := range int64(10) { // before the peak
		j.reads(220+10*i, 1700+i)
	}
	j.reads(350, 2100)
	j.reads(850, 2100)
	for i := range int64(after) {
		j.reads(2000+100*i, 2000+i%7)
	}
	j.reads(2000+100*after/2, 9000)
	j.reads(2000+100*after, 2007)
	r := j.byTime().analyze(t, "rank0", nil)
	h := &r.Devices[0].Holdings
	assert.That(t, len(h.Read) <= accounting.MostOwnReadings && len(h.Read) >= accounting.MostOwnReadings/4, "%d stretches are kept", len(h.Read))
	analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0]}}, nil, "no library")
	b := r.Devices[0].Account
	want := accounting.Reading{Valid: true, Used: 2100 * mib, After: 30 * ms, Steady: true}
	assert.That(t, b.Peak.Read == want && b.UsedPeak == 9000*mib, "peak %+v, greatest %d", b.Peak.Read, b.UsedPeak)
	assert.Equal(t, b.End.Read, accounting.Reading{Valid: true, Used: 2007 * mib, Steady: true}, "end")
	for i := 1; i < len(h.Read); i++ {
		assert.Must(t, h.Read[i].First > h.Read[i-1].Last, "stretch %d begins at %d, the one before ends at %d", i, h.Read[i].First, h.Read[i-1].Last)
	}
}
