package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// graphsResults have graphs in pools of their own, in one pool, in a graph memory, of a native allocator, and
// with names that mean harm.
func graphsResults() []*analysis.Result {
	shape := func(name string, own, shared, addresses int64) graphs.Shape {
		return graphs.Shape{
			Name: name, Seq: 40, Start: 5_000_000, Captures: 1, Time: 12_345_678, Requested: (own+shared)*mib - 3000, Provided: (own+shared)*mib - 1000,
			Own: own * mib, Shared: shared * mib, Address: addresses, Outputs: 4096,
		}
	}
	store := func(s graphs.Store) graphs.Store {
		for i := range s.Shapes {
			s.Sum += s.Shapes[i].Footprint()
			s.Max = max(s.Max, s.Shapes[i].Footprint())
		}
		s.Distinct = s.Sum - s.Saved
		s.Physical = s.Distinct + s.Untouched
		s.Final = s.Physical
		return s
	}
	of := func(name string, g *graphs.Result) *analysis.Result {
		r := reporttest.Training(3, 2, 2)
		r.Process = name
		r.Devices[0].Graphs = g
		return r
	}
	var apart []graphs.Store
	for i := range int64(40) {
		apart = append(apart, store(graphs.Store{Pool: "0." + plain.FormatCount(i), Shapes: []graphs.Shape{shape("", 2*i+2, 0, (2*i+2)*mib)}}))
	}
	apart[2].Released = true
	observed := store(graphs.Store{Pool: "0.2", Shapes: []graphs.Shape{shape("a", 20, 2, 22*mib), shape("", 0, 2, 2*mib)}, Saved: 2 * mib, Untouched: 20 * mib})
	observed.Shapes[0].Provided, observed.Shapes[1].Provided = -1, -1
	native := of("rank1", &graphs.Result{Captures: 2, Stores: []graphs.Store{observed}, WhatIfs: []graphs.WhatIf{{Pool: "0.2", Shapes: 2, Unnamed: 1, Why: "a checkpoint of the pool was restored"}}})
	native.Devices[0].Native, native.Devices[0].Chunks = &torchalloc.Observed{Allocator: "native"}, nil
	for _, at := range []*ledger.Instant{&native.Devices[0].Peak, &native.Devices[0].Final} {
		*at = ledger.Instant{Seq: at.Seq, Time: at.Time, T: at.T, C: at.C, R: at.R, Pending: at.Pending, NotRequested: at.R - at.T - at.Pending, Live: at.Live, Iteration: at.Iteration}
	}
	memory := store(graphs.Store{
		Memory: "1", Saved: 6 * mib, Aliased: 16 * mib, Inputs: graphs.Inputs{Sum: 3 * mib, Max: 2 * mib},
		Shapes: []graphs.Shape{shape("bs 1", 0, 6, 16*gib), shape(reporttest.HostileName, 4, 6, 16*gib)},
	})
	memory.Shapes[0].Released = true
	doubted := store(graphs.Store{
		Memory: "2", Inputs: graphs.Inputs{Sum: -1, Max: -1, Unknown: 1}, Shapes: []graphs.Shape{shape("bs 1", 0, 6, 16*gib), shape("bs 2", 4, 6, 16*gib)},
	})
	doubted.Shapes[1].Inputs = -1
	return []*analysis.Result{
		of("rank0", &graphs.Result{Captures: 40, Stores: apart, WhatIfs: []graphs.WhatIf{{
			Shapes: 40, Unnamed: 40, Model: "bfc", Physical: 1640 * mib, Recorded: 1640 * mib, Separate: 1640 * mib, Largest: 80 * mib,
			Descended: 86 * mib, Ascended: 120 * mib, Aliased: 80 * mib, Outlive: 160 * 1024,
		}}}),
		native,
		of("rank2", &graphs.Result{Captures: 2, Stores: []graphs.Store{memory, {Pool: reporttest.HostileName}}}),
		of("rank3", &graphs.Result{Captures: 2, Stores: []graphs.Store{doubted}}),
	}
}

// Captures that could be pieces of larger ones are reported where something was replayed, in every form.
func TestUnnamedCapturesAreReported(t *testing.T) {
	forms := func(unnamed int) map[string]string {
		results := graphsResults()[:1]
		results[0].Devices[0].Graphs.WhatIfs[0].Unnamed = unnamed
		var text, markdown bytes.Buffer
		for _, err := range []error{Text(&text, results, Scope{All: true}, layout.Options{}), Markdown(&markdown, results, Scope{All: true})} {
			assert.NoError(t, err)
		}
		page, err := json.Marshal(reporttest.Unpack(t, pageOf(t, page.Page{Results: results})))
		assert.NoError(t, err)
		return map[string]string{"text": text.String(), "markdown": markdown.String(), "page": string(page)}
	}
	reported := func(forms map[string]string, form string) bool {
		return strings.Contains(forms[form], "each capture without a name counts as a shape (3 here)")
	}
	some, none := forms(3), forms(0)
	for _, form := range []string{"text", "markdown", "page"} {
		if !reported(some, form) || strings.Contains(none[form], "without a name") {
			t.Errorf("%s: with 3 unnamed captures reported: %v; with none: %v", form, reported(some, form), strings.Contains(none[form], "without a name"))
		}
	}
	why := graphsResults()[1].Devices[0].Graphs.WhatIfs[0]
	s := whatIfSection(&why)
	assert.That(t, len(s.After) == 0, "where nothing was replayed: %v", s.After)
}
