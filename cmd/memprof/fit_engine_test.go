package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// engineRun is a dry run of samples/jobs/engine_start.py on a card of an H200, all sizes captured: 17 in pieces, 51 whole.
const engineRun = "testdata/engine"

// TestFitEngine: the first three graphs of each list say what all take, and the plan has the parts of the card.
func TestFitEngine(t *testing.T) {
	var p fit.Plan
	assert.NoError(t, json.Unmarshal([]byte(memprofIn(t, exit.Fine, "fit", engineRun, "--engine", "--json")), &p))
	assert.Equal(t, p.Total, 150_108_897_280)
	assert.Equal(t, p.Weights+p.Workspaces+p.Activations+p.Graphs+p.DriverGraphs+p.NCCL+p.Libraries+p.Driver+p.Others+p.Left, p.Total)
	assert.Equal(t, p.Workspaces, 32<<20)
	assert.That(t, len(p.Lists) == 2 && len(p.Lists[0].Sizes) == 17 && len(p.Lists[1].Sizes) == 51, "%+v", p.Lists)
	for _, l := range p.Lists {
		assert.That(t, l.Why == "" && l.FromThree == l.Bytes && l.Linear > l.Bytes, "%+v", l)
	}
	assert.Equal(t, p.Recorded, p.Token*32_936_160)
	text := memprofIn(t, exit.Fine, "fit", engineRun, "--engine")
	for _, want := range []string{
		"left for KV", "--kv-cache-memory-bytes", "--gpu-memory-utilization 0.99", "--mem-fraction-static 0.99", "64..1024 by 60",
		"1, 2, 4, 8..256 by 8, 272..512 by 16", "max_num_seqs: 512",
	} {
		assert.That(t, strings.Contains(text, want), "no %q in\n%s", want, text)
	}
	predicted := memprofIn(t, exit.Fine, "fit", engineRun, "--engine=pieces:64..1084/60;whole:1..512/7")
	for from, has := range map[string]bool{text: false, predicted: true} {
		assert.That(t, strings.Contains(from, "not counted: what the driver keeps for graphs that were not captured") == has, "want %v:\n%s", has, from)
	}
}

// engineFew and engineAll are starts of samples/jobs/engine_start.py --shape 7b on an H200 (driver 580.159.04, torch 2.11.0+cu130): three graphs of
// each list with --few 3, and all.
const engineFew, engineAll = "../../samples/engine/few", "../../samples/engine/all"

// engineLists are those that the job captures.
const engineLists = "pieces:64..1024/60;whole:1,2,4,8..248/8,256..512/16"

// TestFitEngineH200: three graphs of each list say what the driver keeps for all, and what is left for the cache. Read by cudaMemGetInfo around
// each capture of a like start, the driver took 136 MiB for the 1,122 pieces and 82 for the 51 whole graphs; PyTorch, whose driver has 143,155 MiB to
// give, reserved 15,168 MiB beside the cache and the graphs' pool of 224, and 980.8 were not PyTorch's.
func TestFitEngineH200(t *testing.T) {
	plan := func(dir string) (p fit.Plan) {
		assert.NoError(t, json.Unmarshal([]byte(memprofIn(t, exit.Fine, "fit", dir, "--engine="+engineLists, "--json")), &p))
		assert.That(t, !p.OwnUnknown && p.DriverUnknown == "", "%s: %+v", dir, p)
		assert.Equal(t, p.Total, 143_155<<20)
		assert.Equal(t, p.Others, 9_240_576) // nobody's, by the readings of the whole card
		return p
	}
	few, all := plan(engineFew), plan(engineAll)
	assert.That(t, few.Predicted && !all.Predicted, "predicted: %v, %v", few.Predicted, all.Predicted)
	assert.Equal(t, all.Lists[0].Driver, 136<<20)
	assert.Equal(t, all.Lists[1].Driver, 82<<20)
	assert.Equal(t, few.Lists[0].Driver/1024, 26*1024*17/3)
	assert.Equal(t, few.Lists[1].Driver, 4*17<<20)
	within := func(what string, got, want, off int64) {
		t.Helper()
		assert.That(t, max(got-want, want-got) <= off, "%s: %d, want %d within %d", what, got, want, off)
	}
	within("the driver's for graphs", few.DriverGraphs, all.DriverGraphs, all.DriverGraphs/50)
	within("its rest", few.Driver, all.Driver, 1<<20)
	room := int64(143_155-15_168-224-981) << 20
	for _, p := range []fit.Plan{few, all} {
		within("left", p.Left, room, p.Margin)
		assert.That(t, p.KV < room && p.KV > room/1000*999, "%d of %d", p.KV, room)
	}
	assert.That(t, strings.Contains(memprofIn(t, exit.Fine, "fit", engineFew, "--engine="+engineLists), "driver, for graphs"), "no row")
}

// TestFitEngineRefused: what is no list of sizes, and a recording without an engine. A card that the weights fill is exit code 1.
func TestFitEngineRefused(t *testing.T) {
	for _, wrong := range []string{"0", "8..1/0", "whole:", "1,,2", "1..5000", "x", "1..99999999999"} {
		text := memprofIn(t, exit.Usage, "fit", engineRun, "--engine="+wrong)
		assert.That(t, strings.Contains(text, "--engine: "), "%s: %s", wrong, text)
	}
	text := memprofIn(t, exit.Usage, "fit", "../../samples/alexnet", "--engine")
	assert.That(t, strings.Contains(text, "no start of an engine"), "%s", text)
	memprofIn(t, exit.Violated, "fit", engineRun, "--engine", "--card", "500MiB")
}

// TestParseLists: ranges with a step, and lists by name.
func TestParseLists(t *testing.T) {
	lists, err := parseLists("pieces:64..128/32;1,2,4..6")
	assert.NoError(t, err)
	assert.Diff(t, map[string][]int64{"pieces": {64, 96, 128}, "": {1, 2, 4, 5, 6}}, lists)
}
