package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// asJSON decodes what a verb prints.
func (b *bench) asJSON(into any, args ...string) {
	b.Helper()
	cmd, stderr := b.memprof(args...)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		b.Fatalf("memprof %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
}

// What PyTorch reserved for AlexNet on an H200, in bytes: natively, and with expandable segments.
const alexnetNative, alexnetExpandable = 1262 << 20, 1050 << 20

// TestTuneTorchJSON: rows of both allocators say whose they are and by which setting, and those of PyTorch what it would reserve.
func TestTuneTorchJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sample, err := filepath.Abs("../../samples/zoo/alexnet")
	if err != nil {
		t.Fatal(err)
	}
	var tuned struct {
		Policies []struct {
			Allocator string
			Setting   *string
			Preset    string
			Peak      int64                            `json:"peak_reserved"`
			Band      *struct{ Least, Greatest int64 } `json:"peak_reserved_band"`
			Slowdown  *float64
		}
	}
	b.asJSON(&tuned, "tune", "--json", sample)
	settings := map[string]int64{}
	for i, p := range tuned.Policies {
		switch {
		case p.Setting == nil:
			t.Fatalf("row %d has no setting", i)
		case p.Allocator == "memprof":
			if *p.Setting != "" || p.Preset == "" || p.Band != nil {
				t.Errorf("row %d of memprof: setting %q, preset %q, band %v", i, *p.Setting, p.Preset, p.Band)
			}
		case p.Allocator == "torch":
			if settings[*p.Setting] = p.Peak; p.Band == nil || p.Peak < p.Band.Least || p.Peak > p.Band.Greatest || p.Preset != "" {
				t.Errorf("row %d, %s: %d bytes, band %v, preset %q", i, *p.Setting, p.Peak, p.Band, p.Preset)
			}
		default:
			t.Errorf("row %d is of the allocator %q", i, p.Allocator)
		}
		if p.Slowdown != nil && (*p.Slowdown < 0 || *p.Slowdown > 0.5) { // the share beyond the recorded step
			t.Errorf("row %d: slowdown %v", i, *p.Slowdown)
		}
	}
	if settings["native"] != alexnetNative || settings["expandable_segments:True"] != alexnetExpandable {
		t.Errorf("native %d and expandable %d bytes, want %d and %d", settings["native"], settings["expandable_segments:True"], alexnetNative, alexnetExpandable)
	}
	for _, searched := range []string{"max_split_size_mb:", "roundup_power2_divisions:", "garbage_collection_threshold:"} {
		found := false
		for text := range settings {
			found = found || strings.HasPrefix(text, searched)
		}
		if !found {
			t.Errorf("%s is not searched", searched)
		}
	}
}

// TestFitJSON: each card of fit says the allocator, its setting or policy, its bytes, and whether it fits.
func TestFitJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sample, err := filepath.Abs("../../samples/zoo/alexnet")
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Cards []struct {
			Allocator, Setting, Policy string
			Least                      int64  `json:"least_bytes"`
			Without                    *int64 `json:"least_without_workspaces_bytes"`
			Fits                       *bool
		}
	}
	b.asJSON(&found, "fit", "--json", "--card", "1800MiB", sample)
	var names []string
	for _, c := range found.Cards {
		names = append(names, c.Allocator+" "+c.Setting+c.Policy)
		if c.Least < 1<<30 || c.Least > 2<<30 || c.Fits == nil || *c.Fits != (c.Least <= 1800<<20) || c.Without != nil && *c.Without >= c.Least {
			t.Errorf("%+v", c)
		}
	}
	for _, want := range []string{"torch native", "torch expandable_segments:True", "memprof classic", "memprof compact"} {
		if !slices.Contains(names, want) {
			t.Errorf("no card of %s, only of %v", want, names)
		}
	}
	if c := found.Cards[0]; *c.Fits || c.Without == nil {
		t.Errorf("native fits on 1,800 MiB: %+v, want that it may, with smaller workspaces", c)
	}
	cmd, stderr := b.memprof("fit", "--card", "1800MiB", sample)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	for _, want := range []string{"without workspaces", "may fit", "cuDNN takes a smaller one then"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestTuneRMM: a log of RMM's requests does not say what RMM reserved, so that no policy is said to need more than that.
func TestTuneRMM(t *testing.T) {
	b := newBench(t)
	log := b.path("rmm.csv")
	rows := "Thread,Time,Action,Pointer,Size,Stream\n0,11:19:54.819890,allocate,0x7effbc800000,4194304,0x0\n0,11:19:54.821766,allocate,0x7effb7e00000,8192,0x0\n"
	if err := os.WriteFile(log, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	b.mustExit(0, "import", "rmm-csv", log, "-o", b.path("run"))
	cmd, stderr := b.memprof("tune", b.path("run"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if text := string(out); strings.Contains(text, "PyTorch's own") || strings.Contains(text, "%") || !strings.Contains(text, "recommended: memprof record") {
		t.Errorf("the answer has a row of PyTorch's, or shares of what was recorded:\n%s", text)
	}
}
