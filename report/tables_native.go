package report

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis"
)

// What of a device with a watched allocator is told, and what is not, has one place: here. A
// number that is not known is -1 in the results and absent in every table.

// watchedSections say first which columns to look at.
func watchedSections(d *analysis.DeviceResult) []section {
	w := d.Sampled
	if w == nil {
		return nil
	}
	s := section{
		title: "Watched, not served",
		before: append(
			note(fmt.Sprintf("torch's own allocator (%s) served the tensors: T, R and what is pending are exact", shorten(w.Allocator, 24))),
			note("C is its own sum, read "+plural(w.Samples, "time")+": where T peaks, at each segment and each mark")...),
		after: toned(faint, note("not told, and shown as "+absent+": rounding and slack, reserve and external, the largest free chunk, C of single blocks")),
	}
	if w.Odd > 0 {
		s.after = append(s.after, toned(warned, note(plural(w.Odd, "reading")+" did not fit the events around it and was left out"))...)
	}
	return []section{s}
}

// splitParts are the terms whose sum is R at the peak instant, as far as they are told apart.
func splitParts(d *analysis.DeviceResult) []part {
	switch {
	case d.Sampled == nil:
		return parts
	case d.Peak.C < 0:
		return []part{parts[0], parts[3], {"not requested", "blocks beyond requests, and free: not told apart", unrequested, warned}}
	}
	return []part{
		parts[0],
		{"internal", "blocks beyond requests: rounding and slack", analysis.Instant.Internal, plain},
		parts[3],
		{"free", "in holes, or never handed out: not told apart", analysis.Instant.Free, warned},
	}
}

// unrequested is what is reserved and neither asked for nor pending.
func unrequested(i analysis.Instant) int64 { return i.R - i.T - i.Pending }

// knownRatio is ratio for a part of which -1 says that it is not known.
func knownRatio(part, whole int64) float64 {
	if part < 0 {
		return math.NaN()
	}
	return ratio(part, whole)
}

// chunkShare is the share of a term that a watched allocator does not tell.
func chunkShare(d *analysis.DeviceResult, part int64) float64 {
	if d.Sampled != nil {
		return math.NaN()
	}
	return ratio(part, d.Peak.R)
}

// verdictText is a verdict as a field of a table.
func verdictText(v analysis.Verdict) string {
	if v == "" {
		return absent
	}
	return shorten(string(v), verdictWidth)
}

// without takes the column of a name out of sections that have one.
func without(name string, sections []section) []section {
	for i := range sections {
		s := &sections[i]
		for at, c := range s.columns {
			if c.name != name {
				continue
			}
			s.columns = append(s.columns[:at:at], s.columns[at+1:]...)
			for k, r := range s.rows {
				s.rows[k] = append(r[:at:at], r[at+1:]...)
			}
			break
		}
	}
	return sections
}
