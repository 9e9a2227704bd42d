package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
)

// Rows of the growth log that are shown before and after the gap.
const growthHead, growthTail = 12, 6

// verdictWidth is the room for a verdict.
const verdictWidth = len(analysis.Fragmentation)

// fragmentationMeans explains the verdict.
const fragmentationMeans = "fragmentation: enough bytes were free, but in no piece that was large enough"

// growthSection lists what made the arenas grow.
func growthSection(d *analysis.DeviceResult) section {
	s := section{title: "Growth"}
	if d.GrowthCount == 0 && len(d.Growths) == 0 {
		s.before = toned(faint, note("no arena grew while it was recorded"))
		return s
	}
	s.before = note(growthSummary(d))
	arenas := growthArenas(d)
	s.columns = []column{
		numbers("time"), numbers("iter"), numbers("request"), numbers("grown"), numbers("free"),
		numbers("largest"), numbers("stranded"), words("verdict"),
	}
	if arenas > 1 {
		s.columns = append([]column{numbers("arena")}, s.columns...)
	}
	for _, g := range d.Growths {
		line := row(FormatDuration(g.Time), iterationText(d, g.Iteration), formatLimit(g.Request), FormatSize(g.Grown),
			formatLimit(g.Free), formatLimit(g.LargestFree), formatLimit(g.Stranded), verdictText(g.Verdict))
		if g.Verdict == analysis.Fragmentation {
			line[len(line)-1].tone = warned
		}
		if arenas > 1 {
			line = append(row(formatCount(int64(g.Arena))), line...)
		}
		s.rows = append(s.rows, line)
	}
	s.elide(growthHead, growthTail)
	if dropped := d.GrowthCount - int64(len(d.Growths)); dropped > 0 {
		s.after = append(s.after, toned(faint, note(fmt.Sprintf("%s after these are counted but not kept", plural(dropped, "growth"))))...)
	}
	for _, g := range d.Growths {
		if g.Verdict == analysis.Fragmentation {
			s.after = append(s.after, note(fragmentationMeans)...)
			break
		}
	}
	s.after = append(s.after, note("free, largest, stranded: bytes free before, the largest free chunk, bytes in chunks too small")...)
	return s
}

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
		of = "the first " + formatCount(kept) + ": "
	}
	return fmt.Sprintf("%s; %s%s mapped, %s for fragmentation",
		plural(total, "extension"), of, FormatSize(grown), formatCount(fragmented))
}

// growthArenas counts the arenas that grew.
func growthArenas(d *analysis.DeviceResult) int {
	seen := make(map[int32]bool)
	for _, g := range d.Growths {
		seen[g.Arena] = true
	}
	return len(seen)
}

// oomSections lists the requests that failed for good; it comes first where there are any.
func oomSections(d *analysis.DeviceResult) []section {
	if len(d.OOMs) == 0 {
		return nil
	}
	s := section{
		title:  "Out of memory",
		before: toned(failed, note(fmt.Sprintf("%s failed for good", plural(int64(len(d.OOMs)), "request")))),
		columns: []column{
			numbers("time"), numbers("request"), numbers("free"), numbers("largest"), numbers("reserved"), words("verdict"), words("context"),
		},
	}
	for _, o := range d.OOMs {
		line := row(FormatDuration(o.Time), formatLimit(o.Request), formatLimit(o.Free), formatLimit(o.LargestFree),
			FormatSize(o.At.R), verdictText(o.Verdict), contextText(o.Requester, 24))
		line[5].tone = failed
		s.rows = append(s.rows, line)
	}
	s.elide(8, 4)
	s.after = verdictNotes(d.OOMs)
	return []section{s}
}

// verdictNotes say what the verdicts that occur mean.
func verdictNotes(ooms []analysis.OOM) []cell {
	has := make(map[analysis.Verdict]bool)
	for _, o := range ooms {
		has[o.Verdict] = true
	}
	var notes []cell
	if has[analysis.Fragmentation] {
		notes = append(notes, note(fragmentationMeans)...)
	}
	if has[analysis.Capacity] {
		notes = append(notes, note("capacity: fewer bytes were free than asked for")...)
	}
	return notes
}
