package summary

import (
	"fmt"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// BriefLines is the most lines of [Brief].
const BriefLines = 8

// Brief is the result of a recording in at most [BriefLines] lines, for a pull request or a chat: of several
// devices it is about the one that failed, else about the one with most reserved. allocator returns the line
// about a device's allocator, or "". Each line fits a terminal of so many columns; 0 means any number.
func Brief(results []*analysis.Result, allocator func(*analysis.Result, *analysis.DeviceResult) string, width int) []layout.Cell {
	ranks := compare.CompareRanks(results)
	r, d := worstDevice(results)
	if d == nil {
		if len(results) == 0 {
			return nil
		}
		return layout.Note(plain.Shorten(results[0].Process, 60) + ": no memory of any device was used")
	}
	lines := Provenance(r, d, allocator(r, d))
	lines[0].Tone = layout.Strong
	if len(ranks.Rows) > 1 {
		lines = append(lines, layout.Note(briefRanks(ranks, r, d))...)
	}
	lines = append(lines, layout.Note(briefPeak(d))...)
	found := Find(Device{DeviceResult: d, Result: r})
	last := "More: memprof report"
	if r.Job != nil {
		last += " " + plain.ShellQuote(r.Job.Path)
	}
	if none := absent(d, found); len(none) > 0 {
		last = none[0].Text + " " + last
	}
	whole, of := Whole(d)
	for _, f := range found[:min(len(found), BriefLines-1-len(lines))] {
		lines = append(lines, briefFinding(f, whole, of))
	}
	lines = append(lines, layout.Note(last)...)
	if width > 0 {
		for i := range lines[:len(lines)-1] { // the last has a command to be copied
			lines[i].Text = plain.Shorten(lines[i].Text, max(width, 80))
		}
	}
	return lines
}

// worstDevice is the device with most failed requests, of equal ones the one with most reserved; nil if no memory
// was used.
func worstDevice(results []*analysis.Result) (of *analysis.Result, worst *analysis.DeviceResult) {
	for _, r := range results {
		for i := range r.Devices {
			d := &r.Devices[i]
			if d.Allocs == 0 && d.MaxR == 0 {
				continue
			}
			if worst == nil || d.OOMCount > worst.OOMCount || d.OOMCount == worst.OOMCount && d.MaxR > worst.MaxR {
				of, worst = r, d
			}
		}
	}
	return of, worst
}

// briefRanks says how the devices differ, and which of them the rest is about.
func briefRanks(ranks *compare.Ranks, r *analysis.Result, d *analysis.DeviceResult) string {
	least, most, failed := ranks.Rows[0].Device.MaxR, ranks.Rows[0].Device.MaxR, int64(0)
	processes := map[string]bool{}
	for i := range ranks.Rows {
		processes[ranks.Rows[i].Process] = true
		least, most = min(least, ranks.Rows[i].Device.MaxR), max(most, ranks.Rows[i].Device.MaxR)
		if ranks.Rows[i].Device.OOMCount > 0 {
			failed++
		}
	}
	text := plain.Counted(int64(len(processes)), "process")
	if n := len(ranks.Rows); n > len(processes) {
		text = plain.Counted(int64(n), "device") + " of " + text
	}
	text += fmt.Sprintf(" reserve %s to %s", plain.FormatSize(least), plain.FormatSize(most))
	if ratio, ok := ranks.Reserved.Ratio(); ok {
		text += fmt.Sprintf(", imbalance %.2f", ratio)
	}
	if failed > 0 {
		text += fmt.Sprintf(", requests failed in %d", failed)
	}
	return fmt.Sprintf("%s; below: %s · GPU %d", text, plain.Shorten(r.Process, 24), d.Device)
}

// briefPeak is [Peak] without the parts of used memory that are not reserved.
func briefPeak(d *analysis.DeviceResult) string {
	text := "Peak: "
	if b := balance(d); b != nil && b.UsedUnknown == "" {
		text += plain.FormatSize(b.Read.Used) + " used, "
	}
	text += fmt.Sprintf("%s reserved, %s requested", plain.FormatSize(d.Peak.R), plain.FormatSize(d.Peak.T))
	if number, ok := d.IterationNumber(d.Peak.Iteration); ok {
		text += ", iteration " + plain.FormatCount(number)
	}
	return text + ", event " + plain.FormatCount(d.Peak.Seq)
}

// briefFinding is a finding in one line: its first clause, and the action without remarks.
func briefFinding(f Finding, whole int64, of string) layout.Cell {
	text, _, _ := strings.Cut(f.Text, ";")
	line := plain.FormatSize(f.Bytes)
	if f.Severity == Cost {
		line += fmt.Sprintf(" (%s of %s)", plain.FormatPercent(plain.Ratio(f.Bytes, whole)), of)
	}
	line += " " + plain.Text(text)
	if f.Action != "none" && !strings.HasPrefix(f.Action, "none:") {
		line += "; action: " + strings.TrimSuffix(plain.Text(f.Action), " (replayed)")
	}
	return layout.Cell{Text: line, Tone: map[Severity]layout.Tone{Grows: layout.Warned, Lost: layout.Failed}[f.Severity]}
}
