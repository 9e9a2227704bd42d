package analysis

// booksMetrics are those of the device accounting at the peak. A part that is unknown has no
// value: what needs a reading in a recording without, driver overhead that was not measured
// or that other processes may have disturbed (every process that uses a device has some), and
// what is unexplained where the reading is not of the process alone.
var booksMetrics = []Metric{
	{"used.peak", Bytes, "greatest use of the device that was read: the process's, or the whole card's, whoever used it, where the driver tells no processes apart", func(d *DeviceResult) (float64, int64, bool) {
		if d.Books == nil || d.Books.UsedPeak < 0 {
			return 0, -1, false
		}
		return float64(d.Books.UsedPeak), -1, true
	}},
	{"accounting.unexplained", Share, "used and in no part of the device accounting; share of used at the peak", func(d *DeviceResult) (float64, int64, bool) {
		b, ok := d.closed()
		if !ok || b.Read.Used <= 0 || b.Unexplained < 0 { // no share of used, where the terms exceed it
			return 0, -1, false
		}
		return share(b.Unexplained, b.Read.Used), b.At.Seq, true
	}},
	{"accounting.unexplained.bytes", Bytes, "used and in no part of the device accounting, at the peak", func(d *DeviceResult) (float64, int64, bool) {
		b, ok := d.closed()
		if !ok {
			return 0, -1, false
		}
		return float64(b.Unexplained), b.At.Seq, true
	}},
	{"accounting.other_libraries", Bytes, "device memory of other libraries at the peak, without managed memory", func(d *DeviceResult) (float64, int64, bool) {
		if d.Books == nil {
			return 0, -1, false
		}
		b := &d.Books.Peak
		return float64(b.Other()), b.At.Seq, true
	}},
	{"accounting.driver_overhead", Bytes, "driver overhead at the peak: context, modules, libraries and graphs, as measured", func(d *DeviceResult) (float64, int64, bool) {
		if d.Books == nil || d.Books.Peak.Overhead() == 0 || d.Books.Peak.Unknown.Has(AllOverhead) {
			return 0, -1, false
		}
		b := &d.Books.Peak
		return float64(b.Overhead()), b.At.Seq, true
	}},
}

// closed is the book of the peak if what is unexplained in it is known.
func (d *DeviceResult) closed() (*Book, bool) {
	if d.Books == nil || d.Books.Peak.UnexplainedUnknown != "" || !d.Books.Peak.Read.Valid {
		return nil, false
	}
	return &d.Books.Peak, true
}
