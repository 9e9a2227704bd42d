package summary

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
)

// MostFindings is the greatest number of findings on a device.
const MostFindings = 10

const (
	page = 2 << 20 // of the GPU's memory, in bytes
	// least is the size below which bytes at the peak are no finding.
	least = page
)

// Device is what the rules look at.
type Device struct {
	*analysis.DeviceResult
	Result *analysis.Result
}

// Finding is what one rule found.
type Finding struct {
	Rule     string // its name in the table
	Bytes    int64  // greater than 0
	Text     string // what the bytes are and where
	Action   string // what to do, "none" where nothing can be done
	Severity Severity
}

// Severity orders findings before their bytes do.
type Severity uint8

const (
	Cost  Severity = iota // memory that was used for something
	Grows                 // memory that would not suffice if the job ran on
	Lost                  // the job could not do something
)

// Find applies the rules to a device and returns the findings, worst first.
func Find(d Device) []Finding {
	var found []Finding
	for i := range Rules {
		r := &Rules[i]
		if bytes := r.Bytes(d); bytes > 0 {
			found = append(found, Finding{r.Name, bytes, r.Text(d), r.Action(d), r.Severity})
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(b.Bytes, a.Bytes))
	})
	return found[:min(len(found), MostFindings)]
}

// Whole is the memory at the peak that findings are shares of: what the device had in use for the process,
// where that was read at the same instant, else what was reserved.
func Whole(d *analysis.DeviceResult) (bytes int64, name string) {
	if b := balance(d); b != nil && b.UsedUnknown == "" {
		return b.Read.Used, "used"
	}
	return d.Peak.R, "reserved"
}

// balance is the device accounting at the peak, if it is of this process alone.
func balance(d *analysis.DeviceResult) *accounting.Balance {
	a := d.Account
	if a == nil || a.Missing != "" || len(a.Processes) != 1 || a.Peak.At.Time != d.Peak.Time {
		return nil
	}
	return &a.Peak
}
