package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The title of a page is its job and the date, as text.
func TestPageTitle(t *testing.T) {
	b := reporttest.NewBrowser(t)
	result := explored(t, 2, nil)
	result.Job = &analysis.Job{Path: "run", Command: []string{"python3", "train.py", "</title><b>&"}, Start: time.Date(2026, 11, 21, 15, 40, 9, 0, time.UTC)}
	other := explored(t, 2, nil)
	other.Job = &analysis.Job{Path: "run2", Command: []string{"python3", "eval.py"}, Start: result.Job.Start}
	var diff bytes.Buffer
	assert.NoError(t, DiffHTML(&diff, compared()))
	for want, html := range map[string][]byte{
		"python3 train.py </title><b>& | 2026-11-21 15:40 UTC": pageOf(t, page.Page{Results: []*analysis.Result{result, result}, Path: "run"}),
		"run run2":                    pageOf(t, page.Page{Results: []*analysis.Result{result, other}, Path: "run run2"}),
		"mine":                        pageOf(t, page.Page{Results: []*analysis.Result{explored(t, 2, nil)}, Path: "mine"}),
		compared().BaseNames[0] + " ": diff.Bytes(),
	} {
		b.Open(html)
		got, _ := b.Eval(`document.title`).(string)
		if strings.HasSuffix(want, " ") {
			assert.That(t, strings.HasPrefix(got, want) && strings.Contains(got, " -> "), "the title is %q, want %q", got, want)
			continue
		}
		assert.Equal(t, got, want, "the title")
	}
	b.Quiet()
}

// Each finding leads to a part of the page that shows what it is about, and does not change what the address says otherwise.
func TestFindingsLinkToEvidence(t *testing.T) {
	b := reporttest.NewBrowser(t)
	result := richResult(t, "rank0", true)
	d := &result.Devices[0]
	d.Replays = []analysis.Replay{{Allocator: "torch", Setting: "native", Reserved: 2 << 30, LeastCard: 3 << 30, Recorded: true}}
	d.Savings = []analysis.Saving{
		{ID: "checkpoint", Text: "checkpoint layers: 1 GiB of saved tensors", LeastCard: 1 << 30, Reserved: 1 << 30},
		{ID: "use-cache", Text: "use_cache=False while training", LeastCard: 3 << 20},
		{ID: "allocator", Text: "PyTorch's own allocator, expandable", Allocator: "torch", Setting: "expandable_segments:True", LeastCard: 1 << 20},
	}
	d.Leak = &iterations.Leak{Verdict: iterations.Leaks, Per: "iteration", Points: 24, Slope: 1 << 20, Module: "train.history", Allocations: []attribution.AllocationGroup{{Blocks: 1, Requested: 512, Provided: 512}}}
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{result}, Path: "run"}))
	waitForEvents(b)
	links, _ := b.Eval(`[...document.querySelectorAll('.findings a')].map((a) => a.getAttribute('href') + ' ' + (a.dataset.category || ''))`).([]any)
	got := fmt.Sprint(links...)
	for _, want := range []string{"#allocations activations", "#allocations kv_cache", "#allocations weights", "#what-it-takes-to-hold-that ", "#leaks ", "#ooms "} {
		assert.That(t, strings.Contains(got, want), "the links are %s, want %q", got, want)
	}
	for i, link := range links {
		b.Eval(fmt.Sprintf(`document.querySelectorAll('.findings a')[%d].scrollIntoView()`, i))
		b.Eval(fmt.Sprintf(`document.querySelectorAll('.findings a')[%d].click()`, i))
		b.Eval(reporttest.TwoFrames)
		id, category, _ := strings.Cut(strings.TrimPrefix(link.(string), "#"), " ")
		seen := b.Eval(fmt.Sprintf(`(() => {
			const node = document.getElementById(%q);
			const box = node && node.getBoundingClientRect();
			return Boolean(box) && box.height > 20 && box.top >= -1 && box.top < innerHeight;
		})()`, id))
		assert.Equal(t, seen, true, "the top of #%s is seen after a click", id)
		switch category {
		case "weights", "activations":
			b.Says(t, "#allocations .chips", "Category: "+category+" ×")
			b.Says(t, ".pin strong", "event "+plain.FormatCount(d.Peak.Seq)+" ")
		case "kv_cache": // there is none
			assert.Equal(t, b.Text("#allocations .chips"), "", "the filters")
		}
	}
	b.Quiet()
}
