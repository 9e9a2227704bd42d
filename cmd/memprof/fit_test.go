package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// What PyTorch reserved for AlexNet on an H200, in bytes: natively, and with expandable segments.
const alexnetNative, alexnetExpandable = 1262 << 20, 1050 << 20

// fitted is what `memprof fit --json` prints, as far as tests need it.
type fitted struct {
	Rows []struct {
		Allocator, Setting, Preset, Trim, Command string
		Handle                                    uint64
		Peak                                      int64                           `json:"peak_reserved"`
		Band                                      struct{ Least, Greatest int64 } `json:"peak_reserved_band"`
		Least                                     int64                           `json:"least_card"`
		Without                                   *int64                          `json:"least_card_without_workspaces"`
		Slowdown                                  *float64
		Recorded, Recommended                     bool
		Fits                                      *bool
	}
}

func (b *bench) fit(args ...string) (f fitted) {
	b.Helper()
	cmd, stderr := b.memprof(append([]string{"fit", "--json"}, args...)...)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	assert.Must(b, err == nil, "memprof fit: %v\n%s", err, stderr)
	return f
}

// of returns the least card under a policy of memprof's.
func (f *fitted) of(policy string) int64 {
	for _, r := range f.Rows {
		if r.Preset == policy {
			return r.Least
		}
	}
	return 0
}

// TestFitHolds: a job completes on the card that fit found, and not on one that is 1 % smaller, where the simulated
// device and the hook decide.
func TestFitHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sample, err := filepath.Abs("../../samples/alexnet")
	assert.NoError(t, err)
	b.record("run", "--", "memprof", "lab", "rerun", sample)
	found := b.fit(b.path("run"))
	for _, policy := range []string{"classic", "compact"} {
		least := found.of(policy)
		b.record("on", "--force", "--preset", policy, "--sim-memory", plain.ExactSize(uint64(least)), "--", "memprof", "lab", "rerun", sample)
		smaller := least / 100 * 99 &^ (2<<20 - 1)
		cmd, stderr := b.memprof("record", "-q", "--force", "--device", "sim", "--sim-memory", plain.ExactSize(uint64(smaller)), "--preset", policy, "-o", b.path("below"), "--", "memprof", "lab", "rerun", sample)
		if code := exitOf(cmd.Run()); code != 1 {
			t.Errorf("%s: exit code %d on %d bytes, 1 %% less than the least card of %d; want 1: some requests fail\n%s", policy, code, smaller, least, stderr)
		}
	}
}

// TestFitJSON: each row says its allocator and setting, what to type, what it reserves and the least card; one is the recorded one.
func TestFitJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sample, err := filepath.Abs("../../samples/zoo/alexnet")
	assert.NoError(t, err)
	found := b.fit("--all", "--card", "1800MiB", sample)
	peaks, recorded := map[string]int64{}, 0
	for i, r := range found.Rows {
		name := strings.TrimSpace(r.Allocator + " " + r.Setting + r.Preset)
		if r.Preset != "" && (r.Handle != 0 || r.Trim != "never") {
			name += " changed"
		}
		peaks[name] = r.Peak
		assert.That(t, (r.Allocator == "memprof") == (r.Preset != "") && (r.Allocator == "torch") == (r.Setting != "") && (r.Command == "") == (r.Setting == "native"),
			"row %d: %+v", i, r)
		assert.That(t, r.Peak >= r.Band.Least && r.Peak <= r.Band.Greatest && r.Least >= 1<<30 && r.Least <= 4<<30,
			"row %d, %s: %d bytes, band %v, least card %d", i, name, r.Peak, r.Band, r.Least)
		assert.That(t, r.Fits != nil && *r.Fits == (r.Least <= 1800<<20) && (r.Without == nil || *r.Without < r.Least), "row %d, %s: %+v", i, name, r)
		// the share beyond the recorded step
		assert.That(t, r.Slowdown != nil && *r.Slowdown >= 0 && *r.Slowdown <= 0.5, "row %d: slowdown %v", i, r.Slowdown)
		if r.Recorded {
			recorded++
		}
	}
	assert.That(t, recorded == 1, "%d rows are the recorded one", recorded)
	if peaks["torch native"] != alexnetNative || peaks["torch expandable_segments:True"] != alexnetExpandable {
		t.Errorf("native %d and expandable %d bytes, want %d and %d", peaks["torch native"], peaks["torch expandable_segments:True"], alexnetNative, alexnetExpandable)
	}
	for _, want := range []string{"torch max_split_size_mb:64", "torch roundup_power2_divisions:8", "memprof classic", "memprof compact", "memprof compact changed"} {
		assert.That(t, peaks[want] != 0, "no row of %s, only of %v", want, peaks)
	}
	r := found.Rows[0]
	assert.That(t, !*r.Fits && r.Without != nil, "native fits on 1,800 MiB: %+v, want that it may, with smaller workspaces", r)
	cmd, stderr := b.memprof("fit", "--card", "1800MiB", sample)
	out, err := cmd.Output()
	assert.Must(t, err == nil, "%v\n%s", err, stderr)
	for _, want := range []string{"without workspaces", "may fit", "cuDNN takes a smaller one then"} {
		assert.That(t, strings.Contains(string(out), want), "no %q in\n%s", want, out)
	}
}
