package analysis

// accountingMetrics are those of the device accounting at the peak. A metric of an unknown term has no value:
// used and unexplained without a reading; driver overhead that was not measured, or whose measurement other
// processes may have changed; unexplained where the reading includes other processes.
var accountingMetrics = []Metric{
	{"used.peak", Bytes, "greatest reading of the device's used memory: the process's, or the whole card's where the driver does not report processes", func(d *DeviceResult) (float64, int64, bool) {
		if d.Account == nil || d.Account.UsedPeak < 0 {
			return 0, -1, false
		}
		return float64(d.Account.UsedPeak), -1, true
	}},
	{"accounting.unexplained", Share, "used and in no term of the device accounting; share of used at the peak", func(d *DeviceResult) (float64, int64, bool) {
		b, ok := d.reconciled()
		if !ok || b.Read.Used <= 0 || b.Unexplained < 0 { // below 0 the terms exceed used, and there is no share
			return 0, -1, false
		}
		return share(b.Unexplained, b.Read.Used), b.At.Seq, true
	}},
	{"accounting.unexplained.bytes", Bytes, "used and in no term of the device accounting, at the peak", func(d *DeviceResult) (float64, int64, bool) {
		b, ok := d.reconciled()
		if !ok {
			return 0, -1, false
		}
		return float64(b.Unexplained), b.At.Seq, true
	}},
	{"accounting.other_libraries", Bytes, "device memory of other libraries at the peak, without managed memory", func(d *DeviceResult) (float64, int64, bool) {
		if d.Account == nil {
			return 0, -1, false
		}
		b := &d.Account.Peak
		return float64(b.Other()), b.At.Seq, true
	}},
	{"accounting.driver_overhead", Bytes, "driver overhead at the peak: context, modules, libraries and graphs, as measured", func(d *DeviceResult) (float64, int64, bool) {
		if d.Account == nil || d.Account.Peak.Overhead() == 0 || d.Account.Peak.Unknown.Has(AllOverhead) {
			return 0, -1, false
		}
		b := &d.Account.Peak
		return float64(b.Overhead()), b.At.Seq, true
	}},
}

// reconciled returns the balance at the peak if its unexplained bytes are known.
func (d *DeviceResult) reconciled() (*Balance, bool) {
	if d.Account == nil || d.Account.Peak.UnexplainedUnknown != "" || !d.Account.Peak.Read.Valid {
		return nil, false
	}
	return &d.Account.Peak, true
}
