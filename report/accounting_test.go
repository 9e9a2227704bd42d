package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/report/reporttest"
)

// accountingResults are processes whose accounts differ in every respect.
func accountingResults() []*analysis.Result {
	holding := func(time int64, libraries ...accounting.LibraryUse) accounting.Holding {
		return accounting.Holding{
			At: ledger.Instant{
				Seq: 9, Time: time, T: 700 * mib, C: 730 * mib, R: gib, Rounding: mib, Slack: 29 * mib, Pending: 24 * mib,
				Reserve: 70 * mib, Reusable: 140 * mib, External: 60 * mib, Live: 3,
			},
			OtherMemory: accounting.OtherMemory{Libraries: libraries, DriverOverhead: accounting.DriverOverhead{Context: 250 * mib, Modules: 40 * mib, Loads: 10 * mib, Graphs: 2 * mib}, Pools: 3 * mib, Managed: 5 * mib, HostPinned: 64 * mib},
		}
	}
	balance := func(time, used, after int64, steady bool, libraries ...accounting.LibraryUse) accounting.Balance {
		b := accounting.Balance{Holding: holding(time, libraries...), Read: accounting.Reading{Valid: true, Used: used, After: after, Steady: steady}}
		b.Rest = used - b.Sum()
		b.Unexplained = b.Rest
		if !steady {
			b.UsedUnknown, b.UnexplainedUnknown, b.Rest, b.Unexplained = "no reading was taken", "no reading was taken", 0, 0
		}
		return b
	}
	shared := func(b accounting.Balance) accounting.Balance {
		b.UnexplainedUnknown, b.Unexplained = "the reading is of the whole card: it includes the memory of other processes", 0
		return b
	}
	lacking := func(b accounting.Balance, parts accounting.OverheadParts) accounting.Balance {
		b.Unknown, b.UnknownWhy, b.UnexplainedUnknown = parts, "other processes may have allocated or freed memory during the measurement", "driver overhead is unknown"
		for part, bytes := range map[accounting.OverheadParts]*int64{accounting.ContextPart: &b.Context, accounting.ModulesPart: &b.Modules, accounting.LoadsPart: &b.Loads} {
			if parts.Has(part) {
				b.Rest, *bytes = b.Rest+*bytes, 0
			}
		}
		b.Unexplained = 0
		return b
	}
	of := func(name string, account *accounting.Account) *analysis.Result {
		r := reporttest.Training(3, 2, 2)
		r.Process = name
		r.Devices[0].Account = account
		return r
	}
	var many []accounting.LibraryUse
	for i := range int64(12) {
		many = append(many, accounting.LibraryUse{Name: fmt.Sprintf("libnumber%d.so", i), Bytes: (12 - i) * mib})
	}
	unread := func(b accounting.Balance) accounting.Balance {
		b.Read, b.Rest, b.Unexplained, b.UsedUnknown, b.UnexplainedUnknown = accounting.Reading{}, 0, 0, "not read", "not read"
		return b
	}
	nccl, blas := accounting.LibraryUse{Name: "libnccl.so.2", Bytes: 120 * mib}, accounting.LibraryUse{Name: "libcublas.so.13", Bytes: 16 * mib}
	first, last := balance(320_000_000, 1500*mib, 30_000_000, true, nccl, blas), balance(990_000_000, 1400*mib, -40_000_000, false, accounting.LibraryUse{Bytes: mib}, blas)
	refuted := shared(lacking(balance(320_000_000, 4*gib, 20_000_000, true, nccl), accounting.ContextPart))
	refuted.ContextRefuted = 5 * gib
	return []*analysis.Result{
		of("rank0", &accounting.Account{
			Scope: accounting.ScopeProcess, Processes: []string{"rank0"}, UsedPeak: 1600 * mib,
			Peak: first, End: last,
		}),
		of("rank1", &accounting.Account{
			Scope: accounting.ScopeDevice, Processes: []string{"rank1", "rank2", "rank3", "rank4", "rank5", reporttest.HostileName}, GPU: 3, UsedBeforeJob: 2 * gib, UsedPeak: 4 * gib,
			Peak: shared(balance(320_000_000, 4*gib, 0, true, many...)), End: shared(balance(990_000_000, 2*gib, 0, true, accounting.LibraryUse{Name: reporttest.HostileName, Bytes: 3})),
		}),
		of("rank6", &accounting.Account{
			Scope: accounting.ScopeCard, Processes: []string{"rank6"}, UsedPeak: 5 * gib,
			Peak: refuted, End: shared(balance(990_000_000, 3*gib, 0, true)),
		}),
		of("pid7", &accounting.Account{
			Scope: accounting.ScopeProcess, Processes: []string{"pid7"}, GPU: -1, UsedPeak: -1, Missing: "the device is simulated",
			Peak: unread(balance(320_000_000, 4*gib, 0, true, nccl)), End: unread(balance(990_000_000, 4*gib, 0, true)),
		}),
		of("pid9", &accounting.Account{
			Scope: accounting.ScopeProcess, Processes: []string{"pid9"}, UsedPeak: 2 * gib,
			Peak: lacking(balance(320_000_000, 2*gib, 0, true, nccl), accounting.ModulesPart|accounting.LoadsPart),
			End:  lacking(balance(990_000_000, 2*gib, 0, true), accounting.AllOverhead),
		}),
		of("pid8", &accounting.Account{Scope: accounting.ScopeProcess, Processes: []string{"pid8"}, UsedPeak: -1, Missing: "NVML: " + reporttest.HostileName}),
	}
}
