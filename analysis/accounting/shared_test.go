package accounting_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The sum of processes is held against readings no less carefully than one.
func TestAccountingTogetherAreSteadyOrSaySo(t *testing.T) {
	for at, steady := range map[int64]bool{500: true, 435: false} { // the second took 10 MiB at 430
		a, _ := reconcileTwo(t, readingsOf(t, "0 all=1 0 2000", "0 all=1 50 2000", fmt.Sprintf("0 all=1 %d 3904", at), "0 all=1 950 3400"))
		assert.That(t, a.Peak.Read.Used == 3904*mib && a.Peak.Read.Steady == steady, "read at %d ms: %+v", at, a.Peak.Read)
	}
}

// twoProcesses share a GPU; the second has 400 MiB, from 400 to 800 ms.
func twoProcesses() (first, second *ledgerJob) {
	second = newLedgerJob()
	second.loads(400, 100*mib, "what=context")
	second.grows(420, 0, 290*mib)
	second.takes(430, 7<<30, 10*mib, "call=cudaMalloc\tlibrary=libnccl.so.2")
	second.allocs(440, 0, 64*mib, 64*mib)
	second.frees(800, 0)
	return ledgerTraining(), second
}

func reconcileTwo(t *testing.T, readings *accounting.Readings) (first, second *accounting.Account) {
	t.Helper()
	one, two := twoProcesses()
	a, b := one.analyze(t, "rank10", readings), two.analyze(t, "rank2", readings)
	analysis.Reconcile([]analysis.Member{
		{Result: a, Device: &a.Devices[0], PID: 71, GPU: 0}, {Result: b, Device: &b.Devices[0], PID: 72, GPU: 0},
	}, readings, "")
	return a.Devices[0].Account, b.Devices[0].Account
}

func TestAccountingOfTwoProcesses(t *testing.T) {
	a, b := reconcileTwo(t, readingsOf(t,
		"0 all=1 0 2000", "0 pid=71 350 1501", "0 pid=71 850 1501", "0 pid=71 950 1402", "0 pid=71 1600 1402",
		"0 pid=72 450 403", "0 pid=72 850 403"))
	assert.That(t, a.Scope == accounting.ScopeProcess && a.Peak.Unexplained == 1*mib && a.End.Unexplained == 2*mib, "first: %+v", a)
	assert.That(t, b.Scope == accounting.ScopeProcess && b.Peak.Unexplained == 3*mib && b.End.Unexplained == 3*mib && b.UsedPeak == 403*mib,
		"second: %+v", b)
}

func TestAccountingOfTwoProcessesTogether(t *testing.T) {
	lines := []string{
		"0 all=1 0 2000", "0 all=1 50 2000", "0 all=1 350 3500", "0 all=1 380 3500",
		"0 all=1 500 3904", "0 all=1 700 3904", "0 all=1 850 3500", "0 all=1 900 3500", "0 all=1 950 3400", "0 all=1 1600 3400",
	}
	for name, more := range map[string][]string{
		"no ids":     nil,
		"one id":     {"0 pid=71 350 1500"}, // of the other nothing is known
		"strange id": {"0 pid=4 350 1500"},
	} {
		a, b := reconcileTwo(t, readingsOf(t, append(lines, more...)...))
		assert.Diff(t, a, b, "%s: the processes have different accounts of one device", name)
		assert.That(t, a.Scope == accounting.ScopeDevice && slices.Equal(a.Processes, []string{"rank2", "rank10"}) && a.UsedPeak == 3904*mib && a.UsedBeforeJob == 2000*mib,
			"%s: %+v", name, a)
		peak := a.Peak
		want := ledger.Instant{
			Seq: -1, Iteration: -1, Time: 600 * ms, T: 764*mib - 100, C: 794 * mib, R: 1290 * mib, Rounding: 100,
			Slack: 30 * mib, Reserve: 496 * mib, Live: 4,
		}
		assert.Diff(t, want, peak.At, "%s: peak", name)
		libraries := []accounting.LibraryUse{{Name: "libnccl.so.2", Bytes: 130 * mib}, {Name: "libcublas.so.13", Bytes: 80 * mib}}
		assert.Diff(t, libraries, peak.Libraries, "%s: libraries", name)
		assert.That(t, peak.Overhead() == 400*mib && peak.Read.Steady && peak.Rest == 2004*mib && peak.UnexplainedUnknown == accounting.WhyNotOurs,
			"%s: peak %+v", name, peak)
		end := a.End
		assert.That(t, end.At.Time == 600*ms && end.Rest == 2004*mib, "%s: the end is not where both were recorded last: %+v", name, end)
	}
}

// A process without further events holds its memory for as long as it lives, and no longer.
func TestAccountingOfAnIdleProcess(t *testing.T) {
	readings := readingsOf(t,
		"0 all=1 0 2000", "0 all=1 50 2000", "0 all=1 350 3500", "0 all=1 380 3500",
		"0 all=1 500 3904", "0 all=1 700 3904", "0 all=1 850 3500", "0 all=1 900 3500", "0 all=1 950 3400", "0 all=1 1600 3400")
	for alive, rest := range map[int64]int64{0: 2404 * mib, 590: 2404 * mib, 840: 2004 * mib} {
		one, two := twoProcesses()
		two.events = two.events[:len(two.events)-1] // the last one is at 440 ms now
		a, b := one.analyze(t, "rank0", readings), two.analyze(t, "rank1", readings)
		analysis.Reconcile([]analysis.Member{
			{Result: a, Device: &a.Devices[0], PID: 71}, {Result: b, Device: &b.Devices[0], PID: 72, Alive: alive * ms},
		}, readings, "")
		account := b.Devices[0].Account
		assert.That(t, account.Peak.At.Time == 600*ms && account.Peak.Rest == rest,
			"alive until %d ms: a rest of %d, want %d: %+v", alive, account.Peak.Rest, rest, account.Peak)
		// the first process alone
		assert.That(t, account.End.Rest == 2000*mib, "alive until %d ms: at the end %+v", alive, account.End)
	}
}
