package report

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// giving is a random job of two arenas that unmap memory in every way: by trims, by reclaims
// and pauses of the second one.
func giving(t *rapid.T) *modeltest.Recorder {
	const unit = 4096
	r := modeltest.New()
	var arenas [2]*modeltest.Arena
	for i := range arenas {
		options := bfc.Options{
			Limit:  rapid.Uint64Range(8<<10, 96<<10).Draw(t, "limit") &^ (unit - 1),
			Growth: rapid.SampledFrom([]bfc.Growth{bfc.Double, bfc.Needed}).Draw(t, "growth"),
		}
		device := bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: unit, Base: uint64(i+1) << 30})
		a, err := r.NewArena(0, options, device, func(uint64) bool { return i == 1 && arenas[0].Trim(16<<10) > 0 })
		assert.NoError(t, err)
		arenas[i] = a
	}
	var live [2][]uint64
	var mapped int64 // of arena 1
	paused := false
	transition := func(kind trace.Kind) {
		r.Add(trace.Event{Kind: kind, Arena: 1, Requested: mapped, Context: r.Strings.Intern("tag=kv")})
	}
	seen := 0
	for range rapid.IntRange(1, 200).Draw(t, "steps") {
		for ; seen < len(r.Events); seen++ {
			switch e := &r.Events[seen]; {
			case e.Arena == 1 && e.Kind == trace.KindMap:
				mapped += e.Provided
			case e.Arena == 1 && e.Kind == trace.KindUnmap:
				mapped -= e.Provided
			}
		}
		which := rapid.IntRange(0, 1).Draw(t, "arena")
		if which == 1 && paused {
			which = 0
		}
		a, blocks := arenas[which], &live[which]
		switch op := rapid.IntRange(0, 19).Draw(t, "op"); {
		case op < 8:
			if addr, ok := a.Alloc(rapid.Uint64Range(1, 1<<rapid.IntRange(4, 14).Draw(t, "bits")).Draw(t, "size"), ""); ok {
				*blocks = append(*blocks, addr)
			}
		case op < 14 && len(*blocks) > 0:
			i := rapid.IntRange(0, len(*blocks)-1).Draw(t, "block")
			a.Free((*blocks)[i], false)
			*blocks = append((*blocks)[:i], (*blocks)[i+1:]...)
		case op < 16:
			a.Trim(rapid.Uint64Range(1, 64<<10).Draw(t, "trim"))
		case op == 16 && mapped > 0:
			paused = !paused
			transition(map[bool]trace.Kind{true: trace.KindPause, false: trace.KindResume}[paused])
		case op > 16:
			r.Mark(0)
		}
	}
	return r
}

// ratios are metrics and fields that are no shares of a whole: what something has beyond something
// else may be more than all of it.
var ratios = map[string]bool{
	"iteration.first_excess": true, "pause.excess": true, "FirstExcess": true, "first_excess": true,
}

func isShare(v float64) bool { return v >= 0 && v <= 1 }

// TestSharesStayWithinTheWhole: whatever a job unmaps and when, no share of a result, a metric,
// the JSON or the text leaves 0 to 1; what cannot be said is unknown.
func TestSharesStayWithinTheWhole(t *testing.T) {
	shrunk := 0
	rapid.Check(t, func(t *rapid.T) {
		recorded := giving(t)
		if len(recorded.Events) < 3 {
			return
		}
		result, err := analysis.Run(modeltest.Source(recorded.Events, 7), analysis.Options{Text: recorded.Strings.Text, Process: "rank0"})
		assert.NoError(t, err)
		results := []*analysis.Result{result}
		for i := range result.Devices {
			d := &result.Devices[i]
			if d.Paper != nil && d.Final.R < d.MaxR {
				shrunk++
			}
			for _, m := range analysis.Metrics() {
				value, _, ok := m.Value(d.Subjects())
				assert.Must(t, !ok || m.Unit != analysis.Share || ratios[m.Name] || isShare(value), "%s = %v", m.Name, value)
				assert.Must(t, !ok || !math.IsNaN(value) && !math.IsInf(value, 0), "%s is known, and %v", m.Name, value)
			}
			if d.Paper == nil {
				continue
			}
			paper := reflect.ValueOf(*d.Paper)
			for i := range paper.NumField() {
				name := paper.Type().Field(i).Name
				v := paper.Field(i)
				if v.Kind() == reflect.Float64 && !ratios[name] && !math.IsNaN(v.Float()) && !isShare(v.Float()) {
					t.Fatalf("Paper.%s = %v", name, v.Float())
				}
			}
		}
		checkJSONShares(t, results)
		checkTextShares(t, results)
	})
	assert.That(t, shrunk != 0, "memory shrank in no trace with iterations")
}

// checkJSONShares looks at the objects of the report's JSON that hold shares.
func checkJSONShares(t *rapid.T, results []*analysis.Result) {
	var out bytes.Buffer
	assert.NoError(t, JSON(&out, results, Scope{}))
	var document any
	assert.NoError(t, json.Unmarshal(out.Bytes(), &document))
	notShares := map[string]bool{"largest_free": true, "reserved": true}
	found := 0
	var walk func(at string, node any)
	walk = func(at string, node any) {
		switch node := node.(type) {
		case []any:
			for _, child := range node {
				walk(at, child)
			}
		case map[string]any:
			for key, child := range node {
				value, number := child.(float64)
				share := at == "waste" || at == "paper" || strings.HasSuffix(key, "_share")
				if number && share && !notShares[key] && !ratios[key] {
					if found++; !isShare(value) {
						t.Fatalf("%s.%s = %v", at, key, value)
					}
				}
				walk(key, child)
			}
		}
	}
	walk("", document)
	assert.Must(t, len(results[0].Devices) <= 0 || results[0].Devices[0].MaxR <= 0 || found >= 6, "%d shares in the JSON", found)
}

var percentage = regexp.MustCompile(`[-−]?[0-9][0-9.,]*%`)

// checkTextShares looks at each percentage of the report, but for the excess of the first iteration.
func checkTextShares(t *rapid.T, results []*analysis.Result) {
	var out bytes.Buffer
	assert.NoError(t, Text(&out, results, Scope{All: true}, layout.Options{}))
	for line := range strings.Lines(out.String()) {
		if _, after, ok := strings.Cut(line, "first-iteration excess"); ok {
			_, line, _ = strings.Cut(after, "·")
		}
		for _, text := range percentage.FindAllString(line, -1) {
			value, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
			assert.Must(t, err == nil && value >= 0 && value <= 100, "%q in %q", text, line)
		}
	}
}

// Where R shrank the table says what its shares are of, and has those of each iteration's own R.
func TestPaperOfShrunkMemory(t *testing.T) {
	const mib = 1 << 20
	d := reporttest.Whole(analysis.DeviceResult{
		Memory: &analysis.Memory{MaxR: 64 * mib, Final: ledger.Instant{R: 16 * mib}, Chunks: &analysis.Chunks{}},
		Allocs: 1, Iterations: make([]iterations.Iteration, 3),
		Paper: &iterations.Paper{Of: 64 * mib, T1: 0.5, C1: 0.75, T2: 0.25, C2: 0.375, FirstExcess: 1, SteadyIdle: 0.625, OwnT1: 0.5, OwnC1: 0.75, OwnT2: 0.8, OwnC2: 0.9},
	})
	textOf := func() string {
		var out bytes.Buffer
		assert.NoError(t, Text(&out, []*analysis.Result{{Process: "rank0", Devices: []analysis.DeviceResult{d}}}, Scope{All: true}, layout.Options{}))
		return out.String()
	}
	text := textOf()
	for _, want := range []string{
		"peaks as shares of the most bytes ever reserved, 64 MiB (16 MiB at the end)",
		"first                        ", "T1 50.0%", "C2 37.5%",
		"later, each of its own peak R", "80.0%", "90.0%",
		"first-iteration excess C1/C2 − 1 = 100.0% · idle in later ones 1 − C2 = 62.5% (lower is better)",
	} {
		assert.That(t, strings.Contains(text, want), "%q is missing in\n%s", want, text)
	}
	d.Final.R = 64 * mib
	if text := textOf(); !strings.Contains(text, "peaks as shares of the bytes reserved at the end, 64 MiB\n") || strings.Contains(text, "own peak R") {
		t.Error(text)
	}
}
