package compare

import (
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
)

// Ranks sets the processes of one job side by side.
//
// A row is a device of a process, with its own peaks. For the imbalance the rows are put
// together by rank: a rank that was started again, has several processes or uses several
// devices counts once, with its greatest row. Where no process has a rank each process is
// one; where some have, the others are rows and in no imbalance.
//
// The one that would run out first has the least left: the memory of its card, less the
// most that it had in use there, less the same of every other process that used that card
// in its time. The most in use is what the driver told of the process; where it told that
// of the card alone, that is for all; where it told nothing, it is what the process
// reserved and what other libraries took, each at its own peak. Of equal ones it is the one
// with more reserved.
type Ranks struct {
	Rows []Rank // in the order of the results: devices on which something was allocated
	// Reserved and Requested compare max R and max T.
	Reserved, Requested Imbalance
	First               int // index into Rows of the one that would run out first; -1 where no card's memory is known
}

// Rank is a row of [Ranks].
type Rank struct {
	Process string
	Number  int // -1 for none
	Device  *analysis.DeviceResult
	Used    int64 // bytes of the card that it held, and those beside it
	Left    int64 // bytes of the card that this leaves, at least 0; -1 where the card's memory is not known

	start, end int64 // time of its first and last event
}

// Imbalance is how far the greatest stands above the mean.
type Imbalance struct {
	Ranks int     // that were compared
	Most  int64   // bytes of the greatest
	Mean  float64 // bytes
	Row   int     // index into Ranks.Rows of the greatest; -1 without any
}

// Ratio is the greatest divided by the mean, 1 when all are alike. It is not ok with fewer
// than two ranks, or with nothing to divide by.
func (i Imbalance) Ratio() (ratio float64, ok bool) {
	if i.Ranks < 2 || i.Mean <= 0 {
		return 0, false
	}
	return float64(i.Most) / i.Mean, true
}

// RankOf is the rank in the name of a process: 3 of "rank3", and of "rank3-pid4711", the
// later of two processes with one rank.
func RankOf(process string) (rank int, ok bool) {
	digits, found := strings.CutPrefix(process, "rank")
	if !found {
		return 0, false
	}
	digits, _, _ = strings.Cut(digits, "-")
	rank, err := strconv.Atoi(digits)
	return rank, err == nil && rank >= 0 && strconv.Itoa(rank) == digits
}

// CompareRanks sets results side by side. They may be of several recordings, those of the
// nodes of one job.
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
	r.Reserved = r.imbalance(func(d *analysis.DeviceResult) int64 { return d.MaxR })
	r.Requested = r.imbalance(func(d *analysis.DeviceResult) int64 { return d.MaxT })
	return r
}

// firstTime is when something was first held on a device.
func firstTime(d *analysis.DeviceResult) int64 {
	if len(d.Series.Points) == 0 {
		return 0
	}
	return d.Series.Points[0].Start
}

// held is the most that a process had in use of its card, or, when whole, all who used it.
func held(d *analysis.DeviceResult) (bytes int64, whole bool) {
	known := d.MaxR + d.OtherLibraries.Peak
	switch b := d.Account; {
	case b == nil || b.UsedPeak < 0:
		return known, false
	case b.Scope != analysis.ScopeProcess:
		return max(known, b.UsedPeak), true
	default: // readings are some time apart: a peak may lie between two of them
		return max(known, b.UsedPeak), false
	}
}

// fill works out what is left beside a row, and whether that is the least.
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
	if row.Left < first.Left || row.Left == first.Left && row.Device.MaxR > first.Device.MaxR {
		r.First = at
	}
}

// shares says whether two processes used one card at one time.
func (r *Rank) shares(other *Rank) bool {
	return r.Device.Card != "" && other.Device.Card == r.Device.Card && other.start <= r.end && r.start <= other.end
}

// imbalance compares a number over the ranks, each with its greatest row.
func (r *Ranks) imbalance(of func(*analysis.DeviceResult) int64) Imbalance {
	ranked := false
	for i := range r.Rows {
		ranked = ranked || r.Rows[i].Number >= 0
	}
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

// RankMetric is a number of all ranks of a job together.
type RankMetric struct {
	Name string
	Unit analysis.Unit
	Help string
	Of   func(*Ranks) Imbalance
}

// RankMetrics are all there are.
func RankMetrics() []RankMetric {
	return []RankMetric{
		{"imbalance.reserved", analysis.Share, "greatest max R of a rank ÷ the mean over all ranks; 100% when all are alike", func(r *Ranks) Imbalance { return r.Reserved }},
		{"imbalance.requested", analysis.Share, "greatest max T of a rank ÷ the mean over all ranks; 100% when all are alike", func(r *Ranks) Imbalance { return r.Requested }},
	}
}
