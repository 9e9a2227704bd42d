package analysis

// booksMetrics are those of the books at the peak. What needs a reading is not known in a
// recording without; nor is context and modules where it was not measured, or the measure is
// refuted: every process that uses a device has a context.
var booksMetrics = []Metric{
	{"used.peak", Bytes, "greatest use of the device that was read: the process's, or the device's beyond what was used before the job; all of the device's where only the process itself could ask", func(d *DeviceResult) (float64, int64, bool) {
		if d.Books == nil || d.Books.UsedPeak < 0 {
			return 0, -1, false
		}
		return float64(d.Books.UsedPeak), -1, true
	}},
	{"books.unexplained", Share, "used and in no term of the books; share of used at the peak", func(d *DeviceResult) (float64, int64, bool) {
		b, ok := d.closed()
		if !ok || b.Read.Used <= 0 {
			return 0, -1, false
		}
		return share(b.Unexplained, b.Read.Used), b.At.Seq, true
	}},
	{"books.unexplained.bytes", Bytes, "used and in no term of the books, at the peak; negative where more is explained than used", func(d *DeviceResult) (float64, int64, bool) {
		b, ok := d.closed()
		if !ok {
			return 0, -1, false
		}
		return float64(b.Unexplained), b.At.Seq, true
	}},
	{"books.other_libraries", Bytes, "device memory of other libraries at the peak, without managed memory", func(d *DeviceResult) (float64, int64, bool) {
		if d.Books == nil {
			return 0, -1, false
		}
		b := &d.Books.Peak
		return float64(b.Other()), b.At.Seq, true
	}},
	{"books.context", Bytes, "context and modules at the peak, as measured", func(d *DeviceResult) (float64, int64, bool) {
		if d.Books == nil || d.Books.Peak.Overhead() == 0 || d.Books.Peak.ContextRefuted != 0 {
			return 0, -1, false
		}
		b := &d.Books.Peak
		return float64(b.Overhead()), b.At.Seq, true
	}},
}

// closed is the book of the peak if it was held against a reading.
func (d *DeviceResult) closed() (*Book, bool) {
	if d.Books == nil || !d.Books.Peak.Read.Valid {
		return nil, false
	}
	return &d.Books.Peak, true
}
