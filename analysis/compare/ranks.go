package compare

import (
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
)

// Ranks compares the processes of one job.
//
// A row is one device of one process, with its own peaks. For the imbalance the rows are grouped by rank: a
// rank that was restarted, has several processes or uses several devices counts once, with its greatest row.
// If no process has a rank, each process counts as a rank. If some have, the rows of the others are in no
// imbalance.
//
// The row that would run out of memory first is the one with the least memory left on its GPU; of equal
// rows, the one with more reserved bytes. The memory left is the GPU's memory minus the most that the
// process used, minus the same of every other process that used this GPU at the same time. The most that a
// process used is the greatest that the driver reported for it, or for the whole GPU; the latter includes
// all other processes. It is at least the process's max R plus the peak of other libraries, also without a
// reading.
type Ranks struct {
	Rows []Rank // devices with allocations, in the order of the results
	// Reserved and Requested are the imbalances of max R and max T.
	Reserved, Requested Imbalance
	First               int // index into Rows of the row that would run out first; -1 if no GPU's memory is known
}

// Rank is a row of [Ranks].
type Rank struct {
	Process string
	Number  int // -1 for none
	Device  *analysis.DeviceResult
	Used    int64 // most bytes of the GPU that it and the other processes on the GPU used
	Left    int64 // bytes of the GPU minus Used, at least 0; -1 if the GPU's memory is unknown

	start, end int64 // when the process first held memory of the device, and its last event, in ns since the clock base of the run
}

// Imbalance compares the greatest rank with the mean of all ranks.
type Imbalance struct {
	Ranks int     // number of ranks compared
	Most  int64   // bytes of the greatest rank
	Mean  float64 // bytes, mean over the ranks
	Row   int     // index into Ranks.Rows of the greatest; -1 if there are no ranks
}

// Ratio returns the greatest divided by the mean: 1 if all ranks are equal, else more. ok is false with fewer
// than two ranks, or if the mean is 0.
func (i Imbalance) Ratio() (ratio float64, ok bool) {
	if i.Ranks < 2 || i.Mean <= 0 {
		return 0, false
	}
	return float64(i.Most) / i.Mean, true
}

// RankOf returns the rank in the name of a process: 3 for "rank3", and for "rank3-pid4711", which is the later
// of two processes with the same rank.
func RankOf(process string) (rank int, ok bool) {
	digits, found := strings.CutPrefix(process, "rank")
	if !found {
		return 0, false
	}
	digits, _, _ = strings.Cut(digits, "-")
	rank, err := strconv.Atoi(digits)
	return rank, err == nil && rank >= 0 && strconv.Itoa(rank) == digits
}

// CompareRanks compares the processes of one job. The results may come from several recordings, one for each
// node.
func CompareRanks(results []*analysis.Result) *Ranks {
	r := &Ranks{First: -1}
	for _, result := range results {
		number, ranked := RankOf(result.Process)
		if !ranked {
			number = -1
		}
		for i := range result.Devices {
			if d := &result.Devices[i]; d.Allocs > 0 {
				r.Rows = append(r.Rows, Rank{Process: result.Process, Number: number, Device: d, start: firstTime(d), end: result.Duration})
			}
		}
	}
	for i := range r.Rows {
		r.fill(i)
	}
	r.Reserved = r.imbalance(reserved)
	r.Requested = r.imbalance(requested)
	return r
}

// Ranks are compared by metrics: results that were stored with their recordings have these, too.
var reserved, requested, libraries = number("reserved.peak"), number("requested.peak"), number("other_libraries.peak")

// number returns a metric's value of a device, 0 where it has none.
func number(metric string) func(*analysis.DeviceResult) int64 {
	m, known := analysis.LookupMetric(metric)
	if !known {
		panic(metric + " is no metric")
	}
	return func(d *analysis.DeviceResult) int64 {
		value, _, _ := m.Value(d.Subjects())
		return int64(value)
	}
}

// firstTime returns the time at which the process first held memory of a device, 0 if that is unknown.
func firstTime(d *analysis.DeviceResult) int64 {
	if len(d.Series.Points) == 0 {
		return 0
	}
	return d.Series.Points[0].Start
}

// held returns the most bytes of the GPU that the process used. If whole is true, the bytes are those of all
// processes that used the GPU.
func held(d *analysis.DeviceResult) (bytes int64, whole bool) {
	known := reserved(d) + libraries(d)
	switch b := d.Account; {
	case b == nil || b.UsedPeak < 0:
		return known, false
	case b.Scope != accounting.ScopeProcess:
		return max(known, b.UsedPeak), true
	default: // readings are taken at intervals, so they may miss the peak
		return max(known, b.UsedPeak), false
	}
}

// fill sets Used and Left of a row, and First if the row has the least left so far.
func (r *Ranks) fill(at int) {
	row := &r.Rows[at]
	row.Left = -1
	var whole bool
	row.Used, whole = held(row.Device)
	for i := range r.Rows {
		if i != at && !whole && row.shares(&r.Rows[i]) {
			others, _ := held(r.Rows[i].Device)
			row.Used += others
		}
	}
	if row.Device.Total <= 0 {
		return
	}
	row.Left = max(0, row.Device.Total-row.Used)
	if r.First < 0 {
		r.First = at
		return
	}
	first := &r.Rows[r.First]
	if row.Left < first.Left || row.Left == first.Left && reserved(row.Device) > reserved(first.Device) {
		r.First = at
	}
}

// shares reports whether two processes used the same GPU at the same time. An unknown GPU is shared by none.
func (r *Rank) shares(other *Rank) bool {
	return r.Device.Card != "" && other.Device.Card == r.Device.Card && other.start <= r.end && r.start <= other.end
}

// imbalance compares a number over the ranks. A rank has the value of its greatest row.
func (r *Ranks) imbalance(of func(*analysis.DeviceResult) int64) Imbalance {
	ranked := slices.ContainsFunc(r.Rows, func(row Rank) bool { return row.Number >= 0 })
	result := Imbalance{Row: -1}
	greatest := map[string]int64{}
	for i := range r.Rows {
		row := &r.Rows[i]
		key := row.Process
		if ranked {
			if row.Number < 0 {
				continue
			}
			key = strconv.Itoa(row.Number)
		}
		value := of(row.Device)
		greatest[key] = max(greatest[key], value)
		if result.Row < 0 || value > result.Most {
			result.Most, result.Row = value, i
		}
	}
	sum := int64(0)
	for _, value := range greatest {
		sum += value
	}
	if result.Ranks = len(greatest); result.Ranks > 0 {
		result.Mean = float64(sum) / float64(result.Ranks)
	}
	return result
}

// RankMetric is a metric that compares all ranks of a job. Its value is a ratio, at least 1 (100 %).
type RankMetric struct {
	Name string
	Unit analysis.Unit
	Help string
	Of   func(*Ranks) Imbalance
}

// RankMetrics returns all rank metrics.
func RankMetrics() []RankMetric {
	return []RankMetric{
		{"imbalance.reserved", analysis.Share, "greatest max R of a rank ÷ the mean over all ranks; 100% when all are alike", func(r *Ranks) Imbalance { return r.Reserved }},
		{"imbalance.requested", analysis.Share, "greatest max T of a rank ÷ the mean over all ranks; 100% when all are alike", func(r *Ranks) Imbalance { return r.Requested }},
	}
}
