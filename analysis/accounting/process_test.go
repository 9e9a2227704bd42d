package accounting_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const mib = 1 << 20

const ms = int64(1_000_000)

// ledgerJob writes events at chosen times.
type ledgerJob struct {
	events  []trace.Event
	strings *dataset.Strings
}

func newLedgerJob() *ledgerJob { return &ledgerJob{strings: dataset.NewStrings()} }

func (j *ledgerJob) add(at int64, e trace.Event, context string) {
	e.Seq, e.Time, e.Context = int64(len(j.events)), at*ms, j.strings.Intern(context)
	j.events = append(j.events, e)
}

// grows makes the arena 0 of a device on first use, and maps bytes at an offset.
func (j *ledgerJob) grows(at, offset, bytes int64) {
	if !slices.ContainsFunc(j.events, func(e trace.Event) bool { return e.Kind == trace.KindArena }) {
		j.add(at, trace.Event{Kind: trace.KindArena, Addr: base, Provided: 1 << 40, Requested: -1}, "growth=double coalesces=1")
	}
	j.add(at, trace.Event{Kind: trace.KindMap, Addr: base + offset, Provided: bytes}, "")
}

const base = int64(1) << 44

func (j *ledgerJob) allocs(at, offset, requested, provided int64) {
	j.add(at, trace.Event{Kind: trace.KindAlloc, Addr: base + offset, Requested: requested, Provided: provided}, "")
}

func (j *ledgerJob) frees(at, offset int64) {
	j.add(at, trace.Event{Kind: trace.KindFree, Addr: base + offset}, "")
}

func (j *ledgerJob) takes(at, addr, bytes int64, context string) {
	j.add(at, trace.Event{Kind: trace.KindExternalAlloc, Arena: trace.NoArena, Addr: addr, Requested: bytes, Provided: bytes}, context)
}

func (j *ledgerJob) gives(at, addr int64) {
	j.add(at, trace.Event{Kind: trace.KindExternalFree, Arena: trace.NoArena, Addr: addr}, "call=cudaFree\tlibrary=any.so")
}

func (j *ledgerJob) loads(at, bytes int64, context string) {
	j.add(at, trace.Event{Kind: trace.KindOverhead, Arena: trace.NoArena, Provided: bytes}, context)
}

func (j *ledgerJob) analyze(t testing.TB, name string, readings *accounting.Readings) *analysis.Result {
	t.Helper()
	r, err := analysis.Run(modeltest.Source(j.events, 3), analysis.Options{Process: name, Text: j.strings.Text, Moments: readings.Moments()})
	assert.NoError(t, err)
	return r
}

// readingsOf reads lines "GPU WHOSE MS USED", used in MiB.
func readingsOf(t testing.TB, lines ...string) *accounting.Readings {
	t.Helper()
	j := newLedgerJob()
	for _, line := range lines {
		var gpu int32
		var whose string
		var at, used int64
		_, err := fmt.Sscan(line, &gpu, &whose, &at, &used)
		assert.Must(t, err == nil, "%q: %v", line, err)
		j.add(at, trace.Event{Kind: trace.KindDeviceUsed, Device: gpu, Arena: trace.NoArena, Requested: 80 << 30, Provided: used * mib}, whose)
	}
	r, err := analysis.ReadReadings(modeltest.Source(j.events, 2), j.strings.Text)
	assert.NoError(t, err)
	return r
}

// training is a job of 1000 MiB reserved, 200 of other libraries and 300 of context and
// modules, of which 100 MiB reserved go again before the end.
func ledgerTraining() *ledgerJob {
	j := newLedgerJob()
	j.loads(10, 250*mib, "what=context")
	j.loads(20, 50*mib, "what=module\tname=kernels.cubin\thow=process")
	j.grows(100, 0, 900*mib)
	j.grows(150, 900*mib, 100*mib)
	j.takes(200, 7<<30, 120*mib, "call=cudaMalloc\tlibrary=libnccl.so.2")
	j.takes(210, 8<<30, 80*mib, "call=cudaMalloc\tlibrary=libcublas.so.13")
	j.allocs(300, 0, 500*mib-100, 500*mib)
	j.allocs(310, 500*mib, 100*mib, 130*mib)
	j.allocs(320, 700*mib, 100*mib, 100*mib)
	j.frees(900, 700*mib)
	j.add(910, trace.Event{Kind: trace.KindUnmap, Addr: base + 900*mib, Provided: 100 * mib}, "")
	j.frees(1500, 500*mib)
	return j
}

func reconcileOne(t testing.TB, j *ledgerJob, readings *accounting.Readings) *accounting.Account {
	t.Helper()
	r := j.analyze(t, "rank0", readings)
	analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0], PID: 71, GPU: 0}}, readings, "")
	return r.Devices[0].Account
}

func TestAccountingOfProcess(t *testing.T) {
	readings := readingsOf(t,
		"0 all=1 0 2000",
		"0 all=1 350 3500", "0 pid=71 350 1500",
		"0 pid=71 850 1500", "0 pid=71 950 1405", "0 pid=71 1550 1405", "0 pid=71 1650 0")
	got := reconcileOne(t, ledgerTraining(), readings)

	peak := ledger.Instant{
		Seq: 9, Time: 320 * ms, T: 700*mib - 100, C: 730 * mib, R: 1000 * mib, Rounding: 100, Slack: 30 * mib,
		Reserve: 270 * mib, Live: 3, Iteration: 0,
	}
	others := accounting.OtherMemory{
		Libraries:      []accounting.LibraryUse{{Name: "libnccl.so.2", Bytes: 120 * mib}, {Name: "libcublas.so.13", Bytes: 80 * mib}},
		DriverOverhead: accounting.DriverOverhead{Context: 250 * mib, Modules: 50 * mib}, ContextSince: 10 * ms,
	}
	end := ledger.Instant{
		Seq: 12, Time: 1500 * ms, T: 500*mib - 100, C: 500 * mib, R: 900 * mib, Rounding: 100,
		Reserve: 170 * mib, Reusable: 230 * mib, Live: 1, Iteration: 0,
	}
	want := &accounting.Account{
		Scope: accounting.ScopeProcess, Processes: []string{"rank0"}, Beside: (3500 - 1405) * mib, UsedPeak: 1500 * mib, Course: got.Course,
		Peak: accounting.Balance{
			Holding:     accounting.Holding{At: peak, Since: 210 * ms, Until: 910 * ms, OtherMemory: others},
			Read:        accounting.Reading{Valid: true, Used: 1500 * mib, After: 30 * ms, Steady: true},
			Unexplained: 0,
		},
		End: accounting.Balance{
			Holding:     accounting.Holding{At: end, Since: 910 * ms, Until: -1, OtherMemory: others},
			Read:        accounting.Reading{Valid: true, Used: 1405 * mib, After: 0, Steady: true},
			Rest:        5 * mib,
			Unexplained: 5 * mib,
		},
	}
	assert.Diff(t, want, got, "account")
}

// What is used and in no event is unexplained, to the byte; less than the events have there is
// no number.
func TestAccountingShowWhatIsHidden(t *testing.T) {
	for hidden, why := range map[int64]string{64: "", 0: "", -64: accounting.WhyBeyond} {
		got := reconcileOne(t, ledgerTraining(), readingsOf(t,
			"0 all=1 0 2000",
			fmt.Sprintf("0 pid=71 350 %d", 1500+hidden), fmt.Sprintf("0 pid=71 850 %d", 1500+hidden),
			fmt.Sprintf("0 pid=71 950 %d", 1400+hidden), fmt.Sprintf("0 pid=71 1600 %d", 1400+hidden)))
		want := max(0, hidden*mib)
		for _, b := range []accounting.Balance{got.Peak, got.End} {
			assert.That(t, b.Unexplained == want && b.Rest == want && b.UnexplainedUnknown == why && b.Unknown == 0, "hidden %d MiB: %+v", hidden, b)
		}
	}
}

// Without ids of processes the whole card is read. What it had in use before the job is taken
// off nothing: it may have gone since, and others may have come.
func TestAccountingOfDevice(t *testing.T) {
	got := reconcileOne(t, ledgerTraining(), readingsOf(t,
		"0 all=1 0 2000", "0 all=1 90 2000", "0 all=1 350 3520", "0 all=1 850 3520", "0 all=1 950 1450", "0 all=1 1600 1450"))
	want := accounting.Account{Scope: accounting.ScopeDevice, Processes: []string{"rank0"}, UsedBeforeJob: 2000 * mib, UsedPeak: 3520 * mib, Course: got.Course, Peak: got.Peak, End: got.End}
	assert.Diff(t, want, *got, "account")
	for rest, b := range map[int64]accounting.Balance{2020: got.Peak, 50: got.End} {
		assert.That(t, b.Rest == rest*mib && b.Read.Used == b.Sum()+b.Rest && b.UnexplainedUnknown == accounting.WhyNotOurs && b.Unexplained == 0,
			"want a rest of %d MiB: %+v", rest, b)
	}
}

// A process that is idle from its last event to its end is held against what was read then,
// and one that ended at once against what was read before.
func TestAccountingOfALastChange(t *testing.T) {
	for alive, want := range map[int64]accounting.Reading{
		0:   {Valid: true, Used: 300 * mib, After: -40 * ms},
		150: {Valid: true, Used: 300 * mib, After: -40 * ms},
		290: {Valid: true, Used: 903 * mib, After: 60 * ms, Steady: true},
		900: {Valid: true, Used: 903 * mib, After: 60 * ms, Steady: true},
	} {
		j := newLedgerJob()
		j.loads(10, 300*mib, "what=context")
		j.grows(140, 0, 600*mib)
		readings := readingsOf(t, "0 all=1 0 0", "0 all=1 100 300", "0 all=1 200 903", "0 all=1 300 903", "0 all=1 400 0")
		r := j.analyze(t, "rank0", readings)
		analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0], Alive: alive * ms}}, readings, "")
		if got := r.Devices[0].Account; got.Peak.Read != want || got.End.Read != want {
			t.Errorf("alive until %d ms: peak %+v, end %+v, want %+v", alive, got.Peak.Read, got.End.Read, want)
		}
	}
}

// A reading while memory is being mapped or unmapped may see a part of it: it counts neither for the state
// before nor for that after.
func TestAccountingReadingsDuringChanges(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		want  accounting.Reading
	}{
		"a good one between": {
			[]string{"0 pid=71 145 500", "0 pid=71 245 903", "0 pid=71 295 880", "0 pid=71 400 301"},
			accounting.Reading{Valid: true, Used: 903 * mib, After: 105 * ms, Steady: true},
		},
		"still growing": {[]string{"0 pid=71 145 500", "0 pid=71 305 301"}, accounting.Reading{Valid: true, Used: 500 * mib, After: 5 * ms}},
		"already going": {[]string{"0 pid=71 40 300", "0 pid=71 295 880", "0 pid=71 400 301"}, accounting.Reading{Valid: true, Used: 300 * mib, After: -100 * ms}},
	} {
		j := newLedgerJob()
		j.loads(10, 300*mib, "what=context")
		j.grows(140, 0, 600*mib)
		j.add(300, trace.Event{Kind: trace.KindUnmap, Addr: base, Provided: 600 * mib}, "")
		j.loads(500, 0, "what=context")
		got := reconcileOne(t, j, readingsOf(t, append([]string{"0 all=1 0 0"}, test.lines...)...))
		assert.That(t, got.Peak.Read == test.want, "%s: %+v, want %+v", name, got.Peak.Read, test.want)
	}
}

func TestAccountingWithoutReadings(t *testing.T) {
	got := reconcileOne(t, ledgerTraining(), nil)
	assert.That(t, got.Peak.Sum() == 1500*mib && !got.Peak.Read.Valid && got.Peak.Unexplained == 0 && got.UsedPeak == -1, "without a library: %+v", got)
	other := reconcileOne(t, ledgerTraining(), readingsOf(t, "1 all=1 0 2000"))
	assert.That(t, other.Missing == "the device's used memory was not read" && !other.Peak.Read.Valid, "another GPU's readings: %+v", other)
	r := ledgerTraining().analyze(t, "rank0", nil)
	analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0], GPU: -1}}, nil, "no card")
	b := r.Devices[0].Account
	assert.That(t, b.Missing == "no card" && b.GPU == -1, "%+v", b)
}

func ofAccounting(m analysis.Metric) bool {
	return strings.HasPrefix(m.Name, "accounting.") || m.Name == "used.peak"
}

func TestAccountingMetrics(t *testing.T) {
	read := readingsOf(t, "0 all=1 0 0", "0 pid=71 350 1600", "0 pid=71 850 1600", "0 pid=71 950 1700", "0 pid=71 1600 1700")
	bare := newLedgerJob() // whose context was not measured
	bare.grows(1, 0, 100*mib)
	refuted := newLedgerJob()
	refuted.loads(10, 4000*mib, "what=context")
	refuted.loads(700, 0, "what=module")
	noReading := map[string]string{"used.peak": "no card", "accounting.unexplained": "no card", "accounting.unexplained.bytes": "no card"}
	tests := []struct {
		name     string
		job      *ledgerJob
		readings *accounting.Readings
		want     map[string]float64
		why      map[string]string // of those that have no value
	}{
		{"all known", ledgerTraining(), read, map[string]float64{
			"used.peak": 1700 * mib, "accounting.unexplained": 100. / 1600, "accounting.unexplained.bytes": 100 * mib,
			"accounting.other_libraries": 200 * mib, "accounting.driver_overhead": 300 * mib,
		}, map[string]string{}},
		{"nothing read", ledgerTraining(), nil, map[string]float64{"accounting.other_libraries": 200 * mib, "accounting.driver_overhead": 300 * mib}, noReading},
		{"nothing measured", bare, nil, map[string]float64{"accounting.other_libraries": 0}, noReading},
		{"refuted", refuted, read, map[string]float64{
			"used.peak": 1700 * mib, "accounting.other_libraries": 0,
		}, map[string]string{"accounting.driver_overhead": accounting.WhyRefuted, "accounting.unexplained": accounting.WhyOverhead, "accounting.unexplained.bytes": accounting.WhyOverhead}},
		{"the whole card", ledgerTraining(), readingsOf(t, "0 all=1 0 0", "0 all=1 350 1600", "0 all=1 850 1600"), map[string]float64{
			"used.peak": 1600 * mib, "accounting.other_libraries": 200 * mib, "accounting.driver_overhead": 300 * mib,
		}, map[string]string{"accounting.unexplained": accounting.WhyNotOurs, "accounting.unexplained.bytes": accounting.WhyNotOurs}},
	}
	for _, test := range tests {
		r := test.job.analyze(t, "p", test.readings)
		missing := ""
		if test.readings == nil {
			missing = "no card"
		}
		analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0], PID: 71}}, test.readings, missing)
		got, why := map[string]float64{}, map[string]string{}
		for _, m := range slices.DeleteFunc(analysis.Metrics(), func(m analysis.Metric) bool { return !ofAccounting(m) }) {
			if value, _, ok := m.Value(r.Devices[0].Subjects()); ok {
				got[m.Name] = value
			} else if text := m.Unknown(r.Devices[0].Subjects()); text != "" {
				why[m.Name] = text
			}
		}
		assert.Diff(t, test.why, why, "%s: why", test.name)
		assert.Diff(t, test.want, got, "%s", test.name)
	}
}

// Memory of libraries is listed by library, and pinned host memory and managed memory apart from it.
func TestOtherLibrariesByKind(t *testing.T) {
	j := newLedgerJob()
	j.takes(1, 1000, 10, "call=cudaMalloc\tlibrary=a.so")
	j.takes(2, 2000, 20, "call=cudaHostAlloc\tlibrary=a.so\thost=1")
	j.takes(3, 3000, 30, "call=cudaMallocManaged\tlibrary=b.so\tmanaged=1")
	j.takes(4, 4000, 40, "cudaMalloc")
	j.takes(5, 5000, 50, "call=cudaMalloc\tlibrary=b.so\thost=0")
	j.gives(6, 1000)
	j.gives(7, 9000) // was there before the hook
	j.takes(8, 4000, 45, "call=cudaMalloc\tlibrary=c.so")
	j.loads(9, 7, "what=context")
	j.loads(10, -2, "what=library\tname=libcudnn.so.9")
	j.loads(10, 3, "what=graph")
	j.loads(10, 4, "what=pool\tname=driver's memory pools")
	j.events[6].Device = 1 // freed from a thread on another device
	j.add(11, trace.Event{Kind: trace.KindExternalFree, Arena: trace.NoArena, Addr: 5000, Device: 1}, "")
	j.loads(12, 6, "what=context\thow=total")
	j.loads(13, 5, "what=context\thow=device")

	r := j.analyze(t, "p", nil)
	want := accounting.OtherMemory{
		Libraries: []accounting.LibraryUse{{Name: "c.so", Bytes: 45}}, DriverOverhead: accounting.DriverOverhead{Context: 7}, Pools: 4,
		OnCard:          accounting.CardGrowth{DriverOverhead: accounting.DriverOverhead{Context: 11, Loads: -2, Graphs: 3}, Parts: accounting.ContextPart | accounting.LoadsPart | accounting.GraphsPart, First: 10 * ms, Last: 13 * ms, Total: true},
		ContextOfDevice: true, ContextIsAll: true, ContextSince: 13 * ms, Managed: 30, HostPinned: 20,
	}
	d := &r.Devices[0]
	assert.Diff(t, want, d.Holdings.Final.OtherMemory, "at the end")
	assert.Equal(t, *d.OtherLibraries, accounting.OtherLibraries{Live: 45, Peak: 100, Calls: 7}, "external")
	// Without an arena the peak is that of the sum: 50 + 45 + 7 + 4.
	peak := d.Holdings.Peak
	assert.That(t, peak.Sum() == 106 && peak.At.Time == 10*ms && peak.Until == 11*ms, "peak %+v", peak)
}

func TestReadReadingsRefusesNonsense(t *testing.T) {
	for _, e := range []trace.Event{
		{Kind: trace.KindDeviceUsed, Device: -1}, {Kind: trace.KindDeviceUsed, Device: accounting.MostGPUs}, {Kind: trace.KindDeviceUsed, Provided: -1},
	} {
		_, err := analysis.ReadReadings(modeltest.Source([]trace.Event{e}, 1), func(int32) string { return "all=1" })
		assert.That(t, err != nil && strings.Contains(err.Error(), "reading 0"), "%+v: %v", e, err)
	}
	_, err := analysis.ReadReadings(modeltest.Source([]trace.Event{{Kind: trace.KindDeviceUsed}}, 1), func(int32) string { return "pid=x" })
	assert.That(t, err != nil, "a process named x was taken")
}
