package summary

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/plain"
)

// briefText is the summary of results, its lines as wide as they like or cut to a width.
func briefText(results []*analysis.Result, width int) []string {
	var lines []string
	for _, cell := range Brief(results, func(*analysis.Result, *analysis.DeviceResult) string { return "Allocator: ours" }, width) {
		lines = append(lines, cell.Text)
	}
	return lines
}

// TestBrief: a summary has eight lines at most, however much was found, and of several processes it is about
// the one that failed.
func TestBrief(t *testing.T) {
	d := sound()
	d.Peak.External, d.Peak.Slack, d.Peak.Pending = gib, 3*gib, 2*gib
	d.Allocs, d.MaxR = 1, 4*gib
	r := d.Result
	r.Process, r.Job = "rank0", &analysis.Job{Path: "run", Command: []string{"train"}}
	r.Devices = []analysis.DeviceResult{*d.DeviceResult}
	want := []string{
		"train | exit not known | 0 ns, 0 iterations, 0 events", "GPU 0", "Allocator: ours",
		"Peak: 4 GiB reserved, 4 GiB requested, event 100",
		"3 GiB (75.0% of reserved) slack: chunks larger than their request; action: memprof tune",
		"2 GiB (50.0% of reserved) freed, but another stream may still use it; action: use fewer streams, or end their use of tensors earlier",
		"1 GiB (25.0% of reserved) external fragmentation; action: memprof tune",
		"No leak (0 B per iteration), no failed request. More: memprof report run",
	}
	if diff := cmp.Diff(want, briefText([]*analysis.Result{r}, 0)); diff != "" {
		t.Errorf("one process (-want +got):\n%s", diff)
	}
	other := *r
	failed := *d.DeviceResult
	failed.MaxR, failed.OOMs, failed.OOMCount = gib, []analysis.OOM{{Request: 5 * gib, Seq: 9, Free: -1, LargestFree: -1}}, 1
	other.Process, other.Devices = "rank1", []analysis.DeviceResult{failed}
	got := briefText([]*analysis.Result{r, &other}, 100)
	if len(got) != BriefLines || got[3] != "2 processes reserve 1 GiB to 4 GiB, imbalance 1.60, requests failed in 1; below: rank1 · GPU 0" {
		t.Errorf("two processes: %q", got)
	}
	both := other
	both.Devices = []analysis.DeviceResult{failed, *d.DeviceResult}
	if got := briefText([]*analysis.Result{&both}, 100); got[3] != "2 devices of 1 process reserve 1 GiB to 4 GiB, requests failed in 1; below: rank1 · GPU 0" {
		t.Errorf("one process with two devices: %q", got)
	}
	if !strings.HasPrefix(got[5], "5 GiB request failed at event 9") {
		t.Errorf("the failure is not the first finding: %q", got)
	}
	for _, line := range got {
		if plain.Width(line) > 100 {
			t.Errorf("wider than 100 columns: %q", line)
		}
	}
	if got := briefText([]*analysis.Result{{Process: "pid1"}}, 0); len(got) != 1 || got[0] != "pid1: no memory of any device was used" {
		t.Errorf("without memory: %q", got)
	}
}
