package top

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// At 80 columns nothing of a row is cut off; with few rows it is said how much is missing.
func TestTopTable(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	held := &attribution.Result{Uses: []attribution.CategoryUse{
		{Category: attribution.Activations, Requested: 60 << 30, Module: "net.conv1", ModuleBytes: 40 << 30},
		{Category: attribution.Weights, Requested: 10 << 30, Line: "train.py:7", LineBytes: 10 << 30},
	}}
	rate := 1234567.0
	look := &View{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"python3", "train\x1b[2J.py"},
		Processes: []Process{{
			Process: "rank0", Events: 1234, Rate: &rate, Iteration: number(17), Phase: "forward",
			Devices: []Memory{{Device: 0, Requested: 70 << 30, Provided: number(71 << 30), Reserved: 72 << 30, MaxReserved: 73 << 30, Live: 123456, Paused: 1 << 30, OOMs: number(2), held: held}},
		}},
		Cards: []Card{{Index: 0, Name: "NVIDIA H200", Used: number(80 << 30), Total: 140 << 30}, {Index: 1, Name: "unknown"}},
	}
	want := []string{
		`memprof top  03:04:05  recording  python3 train\x1b[2J.py`,
		`card 0 NVIDIA H200: 80 GiB of 140 GiB used, all programs`,
		``,
		`rank0: 1,234 events, 1,234,567/s, iteration 17, in forward`,
		`                         requested  provided  reserved largest R allocations`,
		`  GPU 0                     70 GiB    71 GiB    72 GiB    73 GiB     123,456`,
		`    1 GiB paused, 2 requests failed`,
		``,
		`Where the memory is now`,
		`category      bytes   share  most of it in`,
		`activations  60 GiB   85.7%  net.conv1 40 GiB`,
		`weights      10 GiB   14.3%  train.py:7`,
		`requested    70 GiB  100.0%`,
	}
	got := table(look, 80, 0)
	assert.Diff(t, want, got, "lines")
	for _, line := range got {
		assert.That(t, len(line) <= 80, "%d columns: %s", len(line), line)
	}
	look.Command = []string{"python3", strings.Repeat("x", 57_000)}
	if line := table(look, 0, 0)[0]; line != "memprof top  03:04:05  recording  python3 "+strings.Repeat("x", 191)+"…" {
		t.Errorf("a long command line, not on a terminal: %d bytes: %.300s", len(line), line)
	}
	assert.Equal(t, table(look, 80, 0)[0], "memprof top  03:04:05  recording  python3 "+strings.Repeat("x", 38), "a long command line, of 80 columns")
	few := table(look, 80, 5)
	assert.That(t, len(few) == 5 && strings.HasPrefix(few[4], "… 9 more lines"), "in 5 rows: %q", few)
}

// Eight ranks fit a screen of 24 rows and 100 columns: two lines each, with R over time, categories and modules.
func TestTopOfEightRanks(t *testing.T) {
	look := &View{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"torchrun"}}
	for rank := range int64(8) {
		used, iteration, none := (70+rank)<<30, rank, int64(0)
		look.Cards = append(look.Cards, Card{Index: int(rank), Name: "NVIDIA H200", Used: &used, Total: 140 << 30})
		look.Processes = append(look.Processes, Process{Process: fmt.Sprintf("rank%d", rank), Iteration: &iteration, Phase: "forward", Devices: []Memory{{
			Device: int32(rank), Requested: 60 << 30, Reserved: (70 + rank) << 30, MaxReserved: (71 + rank) << 30, OOMs: &none,
			Course:     []int64{0, 1 << 30, 10 << 30, 40 << 30, (70 + rank) << 30},
			Categories: []Share{{"activations", 40 << 30, 10}, {"weights", 20 << 30, 5}}, Modules: []Share{{"model.layers", 30 << 30, 9}},
		}}})
	}
	lines := table(look, 100, 23)
	want := []string{
		"memprof top  03:04:05  recording  torchrun",
		"cards used, all programs: 0 70 GiB, 1 71 GiB, 2 72 GiB, 3 73 GiB, 4 74 GiB, 5 75 GiB, 6 76 GiB, 7 77",
		"               requested  reserved largest R  R since the start         iteration, phase",
		"rank0             60 GiB    70 GiB    71 GiB   ▁▂▅█                     0 forward",
		"  activations 40 GiB, weights 20 GiB | model.layers 30 GiB",
	}
	assert.Diff(t, want, lines[:5], "lines")
	assert.That(t, len(lines) == 19 && strings.HasPrefix(lines[17], "rank7 GPU 7 "), "%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
}

func get(t *testing.T, url, accept string) (text, kind string) {
	t.Helper()
	request, err := http.NewRequest("GET", url, nil)
	assert.NoError(t, err)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	answer, err := http.DefaultClient.Do(request)
	assert.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	assert.Must(t, err == nil && answer.StatusCode == http.StatusOK, "%s: %s, %v", url, answer.Status, err)
	return string(body), answer.Header.Get("Content-Type")
}

// What is served is OpenMetrics: each family declared once before its samples, labels escaped, the end marked.
func TestOpenMetrics(t *testing.T) {
	provided, ooms, iteration, used := int64(5), int64(2), int64(7), int64(9)
	look := &View{
		Processes: []Process{{Process: "rank0", Events: 12, Iteration: &iteration, Devices: []Memory{{
			Requested: 4, Provided: &provided, Reserved: 1 << 50, MaxReserved: 7, OOMs: &ooms, Live: 3, External: 1, Categories: []Share{{"a\"b\\c\nd", 4, 1}},
		}}}},
		Cards: []Card{{Name: "H200", Used: &used}},
	}
	e, err := listen("127.0.0.1:0")
	assert.NoError(t, err)
	defer e.close()
	e.set(look)
	text, kind := get(t, e.url(), "text/html;q=0.1, application/openmetrics-text; version=1.0.0")
	if !strings.HasPrefix(kind, "application/openmetrics-text; version=1.0.0") {
		t.Fatal(kind)
	}
	for _, url := range []string{e.url(), strings.TrimSuffix(e.url(), "metrics")} { // / leads there
		older, kind := get(t, url, "")
		if !strings.HasPrefix(kind, "text/plain; version=0.0.4") || strings.Contains(older, "# UNIT") || strings.Contains(older, "# EOF") ||
			!strings.Contains(older, "# TYPE memprof_failed_requests_total counter\n# HELP memprof_failed_requests_total requests that failed for good\nmemprof_failed_requests_total{process=\"rank0\",device=\"0\"} 2\n") ||
			!strings.Contains(older, "# TYPE memprof_reserved_bytes gauge\n# HELP memprof_reserved_bytes mapped by arenas (R)\nmemprof_reserved_bytes{") {
			t.Errorf("%s: %s\n%s", url, kind, older)
		}
	}
	for _, want := range []string{
		"# TYPE memprof_reserved_bytes gauge\n# UNIT memprof_reserved_bytes bytes\n# HELP memprof_reserved_bytes mapped by arenas (R)\nmemprof_reserved_bytes{process=\"rank0\",device=\"0\"} 1125899906842624\n",
		"memprof_provided_bytes{process=\"rank0\",device=\"0\"} 5\n", "memprof_failed_requests_total{process=\"rank0\",device=\"0\"} 2\n",
		"memprof_free_bytes{process=\"rank0\",device=\"0\",term=\"external\"} 1\n", `category="a\"b\\c\nd"} 4`, "memprof_iteration{process=\"rank0\",device=\"0\"} 7\n",
		"memprof_events_total{process=\"rank0\"} 12\n", "memprof_card_used_bytes{card=\"0\",name=\"H200\"} 9\n",
	} {
		assert.That(t, strings.Contains(text, want), "no %q in\n%s", want, text)
	}
	assert.That(t, strings.HasSuffix(text, "\n# EOF\n"), "ends with %q", text[max(0, len(text)-20):])
	declared := map[string]bool{}
	family := ""
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			family, _, _ = strings.Cut(name, " ")
			assert.That(t, !declared[family], "%s is declared twice", family)
			declared[family] = true
		} else if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, family) {
			t.Errorf("below %s: %s", family, line)
		}
	}
}
