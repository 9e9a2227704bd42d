package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/terms"
)

// Rows of the table of growths before and after the gap.
const growthHead, growthTail = 12, 6

// growthSections list the requests that made arenas grow.
func growthSections(d *analysis.DeviceResult) []layout.Section {
	s := layout.Section{Title: "Growths", Listed: true}
	if d.GrowthCount == 0 && len(d.Growths) == 0 {
		s.Before = layout.Toned(layout.Faint, layout.Note("no arena grew"))
		return []layout.Section{s}
	}
	s.Before = layout.Note(growthSummary(d))
	arenas := growthArenas(d)
	s.Columns = []layout.Column{
		layout.Numbers("time"), layout.Numbers("iter"), layout.Numbers("request"), layout.Numbers("grown"), layout.Numbers("free"),
		layout.Numbers("largest free"), layout.Numbers("too small"), layout.Words("verdict"),
	}
	if arenas > 1 {
		s.Columns = append([]layout.Column{layout.Numbers("arena")}, s.Columns...)
		s.Columns[len(s.Columns)-2] = layout.Numbers("stranded")
	}
	for _, g := range d.Growths {
		line := layout.Row(plain.FormatDuration(g.Time), terms.Iteration(d, g.Iteration), plain.FormatKnown(g.Request), plain.FormatSize(g.Grown),
			plain.FormatKnown(g.Free), plain.FormatKnown(g.LargestFree), plain.FormatKnown(g.TooSmall), terms.Verdict(g.Verdict))
		if g.Verdict == analysis.Fragmentation {
			line[len(line)-1].Tone = layout.Warned
		}
		if arenas > 1 {
			line[len(line)-2] = layout.Row(plain.FormatKnown(g.Stranded))[0]
			line = append(layout.Row(plain.FormatCount(int64(g.Arena))), line...)
		}
		s.Rows = append(s.Rows, line)
	}
	s.Elide(growthHead, growthTail)
	if dropped := d.GrowthCount - int64(len(d.Growths)); dropped > 0 {
		s.After = append(s.After, layout.Toned(layout.Faint, layout.Note(fmt.Sprintf("%s after these are counted but not listed", plain.Counted(dropped, "growth"))))...)
	}
	for _, g := range d.Growths {
		if g.Verdict == analysis.Fragmentation {
			s.After = append(s.After, layout.Note(terms.FragmentationMeans)...)
			break
		}
	}
	meaning := "too small: free in chunks smaller than the request"
	if arenas > 1 {
		meaning = "stranded: free in other arenas"
	}
	s.After = append(s.After, layout.Row("grown: bytes mapped; before the growth: free bytes, the largest free chunk of the arena;", meaning)...)
	return []layout.Section{s}
}

// growthSummary counts the growths and sums their bytes.
func growthSummary(d *analysis.DeviceResult) string {
	var fragmented, grown int64
	for _, g := range d.Growths {
		grown += g.Grown
		if g.Verdict == analysis.Fragmentation {
			fragmented++
		}
	}
	total := max(d.GrowthCount, int64(len(d.Growths)))
	of := ""
	if kept := int64(len(d.Growths)); kept < total {
		of = "the first " + plain.FormatCount(kept) + ": "
	}
	return fmt.Sprintf("%s; %s%s mapped, %s because of fragmentation",
		plain.Counted(total, "growth"), of, plain.FormatSize(grown), plain.FormatCount(fragmented))
}

// growthArenas counts the arenas that grew.
func growthArenas(d *analysis.DeviceResult) int {
	seen := make(map[int32]bool)
	for _, g := range d.Growths {
		seen[g.Arena] = true
	}
	return len(seen)
}

// jsonGrowths are the growths that were kept, and how many there were.
type jsonGrowths struct {
	GrowthCount int64        `json:"growth_count"`
	Growths     []jsonGrowth `json:"growths"`
}

type jsonGrowth struct {
	Seq         int64  `json:"seq"`
	TimeNS      int64  `json:"time_ns"`
	Arena       int32  `json:"arena"`
	Iteration   *int64 `json:"iteration"`
	Request     *int64 `json:"request"`
	Grown       int64  `json:"grown"`
	Reserved    int64  `json:"reserved"`
	Free        *int64 `json:"free"`
	LargestFree *int64 `json:"largest_free"`
	TooSmall    *int64 `json:"too_small"`
	Stranded    *int64 `json:"stranded"`
	Verdict     string `json:"verdict"`
}

func newJSONGrowths(d *analysis.DeviceResult) jsonGrowths {
	j := jsonGrowths{GrowthCount: d.GrowthCount, Growths: []jsonGrowth{}}
	for _, g := range d.Growths {
		j.Growths = append(j.Growths, jsonGrowth{
			Seq: g.Seq, TimeNS: g.Time, Arena: g.Arena, Iteration: jsonIterationNumber(d, g.Iteration), Request: plain.Known(g.Request),
			Grown: g.Grown, Reserved: g.Reserved, Free: plain.Known(g.Free), LargestFree: plain.Known(g.LargestFree), TooSmall: plain.Known(g.TooSmall), Stranded: plain.Known(g.Stranded), Verdict: string(g.Verdict),
		})
	}
	return j
}
