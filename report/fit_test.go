package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func answerOf(rows ...fit.Row) *Fit {
	r := &Fit{Answer: &fit.Answer{Rows: rows}, Variable: "PYTORCH_CUDA_ALLOC_CONF", Compared: &fit.Comparison{Process: "rank0", Requests: 7, Requested: gib, Duration: 1e9, Scale: 1}}
	for i := range rows {
		r.Compared.Rows = append(r.Compared.Rows, fit.Replayed{Allocator: rows[i].Allocator, Reserved: 2 * gib, Least: 2 * gib, Greatest: 2 * gib})
	}
	return r
}

// TestRecommended: the least card decides, then what was recorded; a row that refuses requests or is slow is none. The row is
// emphasized, and so is one that refuses requests.
func TestRecommended(t *testing.T) {
	rows := func() []fit.Row {
		return []fit.Row{
			{Need: fit.Need{Allocator: fit.Allocator{Allocator: "torch", Setting: "native"}, Bytes: 5 * gib}},
			{Need: fit.Need{Allocator: fit.Allocator{Allocator: "torch", Setting: "expandable_segments:True"}, Bytes: 4 * gib}},
			{Need: fit.Need{Allocator: fit.Allocator{Allocator: "memprof", Policy: bfc.Compact.Policy()}, Bytes: 4*gib - 2*mib}},
		}
	}
	for _, test := range []struct {
		name   string
		change func(*Fit)
		want   string
	}{
		{"the first of equals", func(*Fit) {}, "recommended: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
		{"least", func(r *Fit) { r.Rows[2].Bytes = 3 * gib }, "recommended: memprof record --preset compact"},
		{"recorded", func(r *Fit) { r.Compared.Rows[2].Recorded = true }, "recommended: as recorded"},
		{"slow", func(r *Fit) { r.Rows[2].Bytes, r.Compared.Rows[2].Cost = 3*gib, 11e6 }, "recommended: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
		{"refused", func(r *Fit) { r.Compared.Rows[1].Refused, r.Compared.Rows[2].Refused = 1234, 1 }, "recommended: PyTorch's own allocator, without settings"},
	} {
		r := answerOf(rows()...)
		test.change(r)
		var out bytes.Buffer
		assert.NoError(t, layout.WriteText(&out, layout.Options{Width: 400, Color: true}, FitSections(r)...))
		assert.That(t, strings.Contains(out.String(), test.want), "%s: no %q in\n%s", test.name, test.want, out.String())
		refused := strings.Contains(out.String(), "\x1b[1;31m1,234 failed")
		assert.That(t, refused == (test.name == "refused"), "%s: a refusal in red: %v\n%s", test.name, refused, out.String())
	}
	none := answerOf(rows()[:1]...)
	none.Compared.Rows[0].Refused = 1
	assert.Diff(t, -1, none.Compared.Recommend(none.Rows), "recommended where each refuses requests")
}

// An answer says where the job completes on smaller cards, too, and on which larger ones it fails.
func TestLowest(t *testing.T) {
	row := fit.Row{Need: fit.Need{Allocator: fit.Allocator{Allocator: "memprof", Policy: bfc.Classic.Policy()}, Bytes: 4000 << 20, Lowest: 3700 << 20}}
	for _, lowest := range []int64{3700 << 20, 3990 << 20} {
		row.Lowest = lowest
		var out bytes.Buffer
		assert.NoError(t, layout.WriteText(&out, layout.Options{Width: 400}, FitSections(answerOf(row))...))
		said := strings.Contains(out.String(), "memprof classic: completes on ")
		assert.That(t, said == (lowest == 3700<<20), "lowest card %d MiB, said: %v\n%s", lowest>>20, said, out.String())
	}
	row.Lowest = row.Bytes
	for _, highest := range []int64{4010 << 20, 4200 << 20} {
		row.Highest = highest
		var out bytes.Buffer
		assert.NoError(t, layout.WriteText(&out, layout.Options{Width: 400}, FitSections(answerOf(row))...))
		said := strings.Contains(out.String(), "memprof classic: fails on single cards below 4.10 GiB")
		assert.That(t, said == (highest == 4200<<20), "highest card %d MiB, said: %v\n%s", highest>>20, said, out.String())
	}
}

// A recording in which requests failed ends too early for its least card, which the answer says. The card that is asked about is
// named with its bytes unless its name is its bytes, and a margin below 0 has the minus of every other verb.
func TestNotes(t *testing.T) {
	row := fit.Row{Need: fit.Need{Allocator: fit.Allocator{Allocator: "memprof", Policy: bfc.Classic.Policy()}, Bytes: 4000 << 20, Lowest: 4000 << 20}}
	text := func(failed int64, card string, bytes int64) string {
		r := answerOf(row)
		r.Processes, r.Card, r.Bytes = []fit.Measured{{Name: "rank0", Survey: fit.Survey{Failed: failed}}}, card, bytes
		var out strings.Builder
		assert.NoError(t, layout.WriteText(&out, layout.Options{Width: 400}, FitSections(r)...))
		return out.String()
	}
	const failed = "rank0: 4,312 requests failed in the recording: what the job would have requested after them is not in it, so that the least card may be greater"
	const footer = "least card: bytes that it must have free before the job begins, to within 2 MiB, and the job completes on the larger cards that were tried"
	for _, test := range []struct {
		failed int64
		card   string
		bytes  int64
		want   []string
		absent []string
	}{
		{4312, "", 0, []string{failed, footer + ". --card SIZE replays one"}, nil},
		{0, "3GiB", 3 << 30, []string{"│ -928 MiB │", footer + "\n"}, []string{"failed in the recording", "3GiB: 3 GiB"}},
		{0, "H100", 79 << 30, []string{"H100: 79 GiB\n"}, []string{"--card"}},
	} {
		got := text(test.failed, test.card, test.bytes)
		for _, want := range test.want {
			assert.That(t, strings.Contains(got, want), "card %q: no %q in\n%s", test.card, want, got)
		}
		for _, absent := range test.absent {
			assert.That(t, !strings.Contains(got, absent), "card %q: %q in\n%s", test.card, absent, got)
		}
	}
}
