package analysis

import (
	"github.com/memprof/memprof/analysis/accounting"
)

// accountingMetrics are those of the device accounting at the peak. A metric of an unknown term has no value:
// used and unexplained without a reading; driver overhead that was not measured, or whose measurement other
// processes may have changed; unexplained where the reading includes other processes.
var accountingMetrics = []Metric{
	account.metric("used.peak", Bytes, "greatest reading of the device's used memory: the process's, or the whole card's where the driver does not report processes", func(a *accounting.Account) (float64, int64, bool) {
		return float64(a.UsedPeak), -1, a.UsedPeak >= 0
	}),
	reconciled.metric("accounting.unexplained", Share, "used and in no term of the device accounting; share of used at the peak", func(b *accounting.Balance) (float64, int64, bool) {
		// Below 0 the terms exceed used, and there is no share.
		return share(b.Unexplained, b.Read.Used), b.At.Seq, b.Read.Used > 0 && b.Unexplained >= 0
	}),
	reconciled.metric("accounting.unexplained.bytes", Bytes, "used and in no term of the device accounting, at the peak", func(b *accounting.Balance) (float64, int64, bool) {
		return float64(b.Unexplained), b.At.Seq, true
	}),
	account.metric("accounting.other_libraries", Bytes, "device memory of other libraries at the peak, without managed memory", func(a *accounting.Account) (float64, int64, bool) {
		return float64(a.Peak.Other()), a.Peak.At.Seq, true
	}),
	account.metric("accounting.driver_overhead", Bytes, "driver overhead at the peak: context, modules, libraries and graphs, as measured", func(a *accounting.Account) (float64, int64, bool) {
		return float64(a.Peak.Overhead()), a.Peak.At.Seq, a.Peak.Overhead() != 0 && !a.Peak.Unknown.Has(accounting.AllOverhead)
	}),
}

var (
	account = ofWhole(func(d *DeviceResult) *accounting.Account { return d.Account })
	// reconciled is the balance at the peak if its unexplained bytes are known.
	reconciled = ofWhole(func(d *DeviceResult) *accounting.Balance {
		if d.Account == nil || d.Account.Peak.UnexplainedUnknown != "" || !d.Account.Peak.Read.Valid {
			return nil
		}
		return &d.Account.Peak
	})
)
