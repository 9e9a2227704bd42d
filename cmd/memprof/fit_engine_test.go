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
	assert.Equal(t, p.Weights+p.Workspaces+p.Activations+p.Graphs+p.NCCL+p.Libraries+p.Driver+p.Others+p.Left, p.Total)
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
