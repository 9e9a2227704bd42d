package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/report/layout"
)

// A job of another size may fit a card between the bounds of its least card, and the answer says which requests leave
// them apart.
func TestScaledVerdicts(t *testing.T) {
	const gib = 1 << 30
	text := func(card, least, greatest int64) string {
		row := fit.Row{Need: fit.Need{Allocator: fit.Allocator{Allocator: "torch", Setting: "native"}, Bytes: 5 * gib, Lowest: 5 * gib}, Fits: 5*gib <= card}
		r := &Fit{Answer: &fit.Answer{Rows: []fit.Row{row}}, Card: "card", Bytes: card, Scale: &FitScale{
			Name: "batch", Sizes: []float64{16, 64}, Size: 32, Replayed: true,
			Rows:   []fit.Scaled{{Predicted: 5 * gib, Least: least, Greatest: greatest}},
			Unsure: fit.Unsure{Requests: 12, Workspaces: 8, Least: 74 << 20, Greatest: 205 << 20, Origin: "features.21"},
		}}
		var out bytes.Buffer
		if err := FitText(&out, r, layout.Options{Width: 400}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	tests := []struct {
		card, least, greatest int64
		want                  string
	}{
		{8 * gib, 4 * gib, 6 * gib, "fits"},
		{6 * gib, 4 * gib, 6 * gib, "fits"},
		{6*gib - 1, 4 * gib, 6 * gib, "may fit"},
		{4 * gib, 4 * gib, 6 * gib, "may fit"},
		{4*gib - 1, 4 * gib, 6 * gib, "does not fit"},
		{6 * gib, 0, 0, "fits"},
		{4 * gib, 0, 0, "does not fit"},
	}
	for _, test := range tests {
		got := text(test.card, test.least, test.greatest)
		if !strings.Contains(got, "│ "+test.want+" ") {
			t.Errorf("on %d bytes, between %d and %d, the answer lacks %q:\n%s", test.card, test.least, test.greatest, test.want, got)
		}
	}
	if got := text(8*gib, 4*gib, 6*gib); !strings.Contains(got, "12 requests (8 freed at once") || !strings.Contains(got, "by features.21 has between 74 MiB and 205 MiB") {
		t.Errorf("the answer does not say what is unsure:\n%s", got)
	}
}

// An answer says where the job completes on smaller cards, too, and on which larger ones it fails.
func TestLowest(t *testing.T) {
	row := fit.Row{Need: fit.Need{Allocator: fit.Allocator{Allocator: "memprof", Policy: "classic"}, Bytes: 4000 << 20, Lowest: 3700 << 20}}
	for _, lowest := range []int64{3700 << 20, 3990 << 20} {
		row.Lowest = lowest
		var out bytes.Buffer
		if err := FitText(&out, &Fit{Answer: &fit.Answer{Rows: []fit.Row{row}}}, layout.Options{Width: 400}); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(out.String(), "memprof classic: completes on "); said != (lowest == 3700<<20) {
			t.Errorf("lowest card %d MiB, said: %v\n%s", lowest>>20, said, out.String())
		}
	}
	row.Lowest = row.Bytes
	for _, highest := range []int64{4010 << 20, 4200 << 20} {
		row.Highest = highest
		var out bytes.Buffer
		if err := FitText(&out, &Fit{Answer: &fit.Answer{Rows: []fit.Row{row}}}, layout.Options{Width: 400}); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(out.String(), "memprof classic: fails on single cards below 4.10 GiB"); said != (highest == 4200<<20) {
			t.Errorf("highest card %d MiB, said: %v\n%s", highest>>20, said, out.String())
		}
	}
}

// A recording in which requests failed ends too early for its least card, which the answer says. The card that is asked about is
// named with its bytes unless its name is its bytes, and a margin below 0 has the minus of every other verb.
func TestNotes(t *testing.T) {
	row := fit.Row{Need: fit.Need{Allocator: fit.Allocator{Allocator: "memprof", Policy: "classic"}, Bytes: 4000 << 20, Lowest: 4000 << 20}}
	text := func(failed int64, card string, bytes int64) string {
		answer := &fit.Answer{Rows: []fit.Row{row}, Processes: []fit.Measured{{Name: "rank0", Survey: fit.Survey{Failed: failed}}}}
		var out strings.Builder
		if err := FitText(&out, &Fit{Answer: answer, Card: card, Bytes: bytes}, layout.Options{Width: 400}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const failed = "rank0: 4,312 requests failed in the recording: what the job would have requested after them is not in it, so that the least card may be greater"
	const footer = "least card: to within 2 MiB, and the job completes on the larger cards that were tried"
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
			if !strings.Contains(got, want) {
				t.Errorf("card %q: no %q in\n%s", test.card, want, got)
			}
		}
		for _, absent := range test.absent {
			if strings.Contains(got, absent) {
				t.Errorf("card %q: %q in\n%s", test.card, absent, got)
			}
		}
	}
}
