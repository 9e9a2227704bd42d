package rmmlog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/report/export"
	"github.com/memprof/memprof/trace"
)

const sample = Header + `
7,23:59:59.900000,allocate,0x7f0000000000,1000,0x2
7,23:59:59.950000,allocate,0x7f0000010000,1000,0x0
8,00:00:00.100000,free,0x7f0000000000,1000,0x2
8,00:00:00.200000,free,0x7f0000100000,300,0x2
8,00:00:01.000000,allocate failure,0x0,1099511627776,0x2
7,00:00:02.000000,allocate,0x7f0000000000,5000,0x2
`

func imported(t *testing.T, logs ...string) (*trace.Run, []Process) {
	t.Helper()
	var files []string
	for _, text := range logs {
		path := filepath.Join(t.TempDir(), "rmm.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	dir := t.TempDir()
	made, err := Import(dir, files, "test")
	if err != nil {
		t.Fatal(err)
	}
	run, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return run, made
}

// The numbers of a log: what is requested, what was there before, a failed request, midnight.
func TestImport(t *testing.T) {
	run, made := imported(t, sample)
	if want := (Process{Name: "gpu0", File: made[0].File, Entries: 6, Blocks: 1, Bytes: 512}); made[0] != want {
		t.Errorf("%+v, want %+v", made[0], want)
	}
	analyzed, err := recording.Analyze(run.Dir, run, analysis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := analyzed.Results[0].Devices[0]
	if d.MaxT != 6000 || d.MaxR != 5120+1024 || d.Final.T != 6000 || d.OOMCount != 1 {
		t.Errorf("requested at most %d, at the end %d; reserved at most %d; %d failed", d.MaxT, d.Final.T, d.MaxR, d.OOMCount)
	}
	if got := analyzed.Results[0].Duration; got != 2_100_000_000 {
		t.Errorf("%d ns", got)
	}
}

// An imported log, exported, has the same rows.
func TestRoundTrip(t *testing.T) {
	run, _ := imported(t, sample)
	var out bytes.Buffer
	if err := export.RMM(&out, &export.Recording{Run: run}, run.Processes[0]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample, out.String()); diff != "" {
		t.Error(diff)
	}
}

// Rows of earlier versions, and of the debug output of others, without the header.
func TestDialects(t *testing.T) {
	for name, log := range map[string]string{
		"colon":   "1,10:11:12:000001,allocate,0x100,8,0\n1,10:11:12:000003,free,0x100,8,0\n",
		"seconds": "140573312345856,1634567890.000001,allocate,0x100,8,0x7f8a38001020\r\n140573312345856,1634567890.000003,deallocate,0x100,8,0x7f8a38001020\r\n",
		"nil":     "1, 10:11:12.000001, allocate, 0x100, 8, (nil)\n1,10:11:12.000002,allocate failure,(nil),8,(nil)\n1,10:11:12.000003,free,0x100,8,(nil)",
	} {
		run, made := imported(t, log)
		events, err := run.Processes[0].ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if last := events[len(events)-1]; made[0].Odd != 0 || last.Kind != trace.KindUnmap || last.Time != 2000 {
			t.Errorf("%s: %+v, %v at %d ns", name, made[0], last.Kind, last.Time)
		}
	}
}

func TestRanks(t *testing.T) {
	run, made := imported(t, sample, sample)
	if len(made) != 2 || made[1].Name != "rank1" || run.Processes[1].WorldSize != 2 {
		t.Errorf("%+v", made)
	}
}

// A block that is there already, and one that is freed twice or with another size, are contradictions.
func TestOdd(t *testing.T) {
	_, made := imported(t, "1,10:00:00.0,allocate,0x100,300,0\n1,10:00:00.0,allocate,0x200,8,0\n1,10:00:00.0,free,0x100,301,0\n1,10:00:00.0,free,0x100,300,0\n1,10:00:00.0,free,0x100,300,0\n")
	if made[0].Odd != 3 || made[0].Blocks != 0 {
		t.Errorf("%+v", made[0])
	}
}

// Of two blocks that are freed, were never begun and overlap, the first one was there; only the free of the other one is odd.
func TestOddOpening(t *testing.T) {
	_, made := imported(t, "1,10:00:00.0,free,0x100,1024,0\n1,10:00:00.0,free,0x200,256,0\n1,10:00:00.0,allocate,0x900,8,0\n")
	if want := (Process{Name: "gpu0", File: made[0].File, Entries: 3, Blocks: 1, Bytes: 1024, Odd: 1}); made[0] != want {
		t.Errorf("%+v, want %+v", made[0], want)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "no rows",
		Header:                       "no rows",
		"a,b":                        ":1: 2 fields",
		Header + "\n1,2:3,x,,,":      ":2: time \"2:3\"",
		"1,10:00:60.0,alloc,0x1,1,0": `:1: action "alloc": want allocate, free or allocate failure`,
		"1,25:00:00.0,free,0x1,1,0":  `:1: time "25:00:00.0": field 1`,
		"1,10:00:00.0,free,0xg,1,0":  `:1: pointer "0xg"`,
		"1,10:00:00.0,free,0x1,-1,0": `:1: size "-1"`,
		"1,10:00:00.0,free,0x1,1,x":  `:1: stream "x"`,
		"x,10:00:00.0,free,0x1,1,0":  `:1: thread "x"`,
		"1,10:00:00.0,allocate,0x1,9000000000000000000,0": "9000000000000000000 bytes",
		strings.Repeat("x", 5000):                         "not a log of RMM",
	} {
		path := filepath.Join(t.TempDir(), "rmm.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		_, err := Import(dir, []string{path}, "test")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "rmm.csv") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%q: %v is left", text, left)
		}
	}
	if _, err := Import(t.TempDir(), []string{"nothing"}, "test"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzImport: no bytes do worse than an error, and what is imported can be analyzed.
func FuzzImport(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("1,10:11:12:000001,allocate,0x100,8,0\n1,1.5,free,0x100,8,0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path, dir := filepath.Join(t.TempDir(), "rmm.csv"), t.TempDir()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Import(dir, []string{path}, "test"); err != nil {
			return
		}
		run, err := trace.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := recording.Analyze(dir, run, analysis.Options{}); err != nil {
			t.Fatal(err)
		}
	})
}
