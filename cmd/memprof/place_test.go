package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// newRecording makes a small recording of one process in a directory with an odd name.
func newRecording(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "odd [name]*")
	mustMake(t, dir)
	tracetest.WriteRun(t, dir, tracetest.Process{
		Meta: dataset.ProcessMeta{Name: "pid1", Rank: -1}, Events: []trace.Event{{Kind: trace.KindAlloc, Requested: 1}}, Texts: []string{""},
	})
	return dir
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	assert.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	assert.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestPlaceForce: a recording is replaced, files beside it that a recording does not need are left alone.
func TestPlaceForce(t *testing.T) {
	dir := newRecording(t)
	const runID = tracetest.RunID
	for _, name := range []string{"notes.txt", "report.html", ".ballast." + runID, "pid1-0001." + runID + ".parquet.tmp", ".ballast", "theirs.parquet.tmp"} {
		mustWrite(t, filepath.Join(dir, name), "")
	}
	_, err := recorder.NewPlace(dir, "", "job", false)
	if err == nil || !strings.Contains(err.Error(), "holds a recording (run.json): choose another directory, or --force to replace it") {
		t.Fatalf("without --force: %v, want that there is a recording", err)
	}
	if _, err := recorder.NewPlace(dir, "", "job", true); err != nil {
		t.Fatal(err)
	}
	want := []string{".ballast", "notes.txt", "report.html", "spool", "theirs.parquet.tmp"}
	got := namesIn(t, dir)
	assert.That(t, slices.Equal(got, want), "after --force: %q, want %q", got, want)
}

// TestPlaceOfOthers: nothing is removed where a file that is in the way does not say that it is of a recording, and
// --force is not what to do about it.
func TestPlaceOfOthers(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, dir string)
	}{
		{"train.parquet", func(t *testing.T, dir string) {
			mustWrite(t, filepath.Join(dir, "train.parquet"), "PAR1 and so on PAR1")
		}},
		{"run.json", func(t *testing.T, dir string) { mustWrite(t, filepath.Join(dir, "run.json"), `{"id": "42"}`) }},
		{"spool", func(t *testing.T, dir string) {
			mustMake(t, filepath.Join(dir, "spool"))
			mustWrite(t, filepath.Join(dir, "spool", "letter"), "")
		}},
		{"spool", func(t *testing.T, dir string) {
			mustMake(t, filepath.Join(dir, "spool", "p1.2"))
			mustWrite(t, filepath.Join(dir, "spool", "p1.2", "thesis"), "")
		}},
		{"summary", func(t *testing.T, dir string) {
			assert.NoError(t, os.Symlink(t.TempDir(), filepath.Join(dir, "summary")))
		}},
		{"link.parquet", func(t *testing.T, dir string) {
			part := filepath.Join(newRecording(t), "pid1-0000.parquet")
			assert.NoError(t, os.Symlink(part, filepath.Join(dir, "link.parquet")))
		}},
	}
	for _, test := range tests {
		for _, beside := range []bool{false, true} {
			dir := mustMake(t, filepath.Join(t.TempDir(), "data"))
			if beside {
				if dir = newRecording(t); test.name == "run.json" {
					os.Remove(filepath.Join(dir, test.name))
				}
			}
			test.make(t, dir)
			before := namesIn(t, dir)
			for _, force := range []bool{false, true} {
				_, err := recorder.NewPlace(dir, "", "job", force)
				if err == nil || !strings.Contains(err.Error(), "have the names of a recording ("+test.name+"): choose another directory") || strings.Contains(err.Error(), "--force") {
					t.Errorf("%s, beside a recording %v, --force %v: %v", test.name, beside, force, err)
				}
			}
			after := namesIn(t, dir)
			assert.That(t, slices.Equal(before, after), "%s, beside a recording %v: %q became %q", test.name, beside, before, after)
		}
	}
}

// TestForeignSpoolLink: a recording from somebody else must not make memprof delete what
// its spool leads to, whatever that is called.
func TestForeignSpoolLink(t *testing.T) {
	victim := mustMake(t, filepath.Join(t.TempDir(), "victim"))
	spools := mustMake(t, filepath.Join(t.TempDir(), "spools"))
	assert.NoError(t, spool.Make(victim, spools))
	theirs, err := os.Readlink(filepath.Join(victim, "spool"))
	assert.NoError(t, err)
	unmarked := mustMake(t, filepath.Join(t.TempDir(), "memprof-spool-1"))
	for _, target := range []string{t.TempDir(), theirs, unmarked} {
		mustWrite(t, filepath.Join(target, "thesis"), "")
		dir := newRecording(t)
		assert.NoError(t, os.Symlink(target, filepath.Join(dir, "spool")))
		_, err := recorder.NewPlace(dir, "", "job", true)
		assert.That(t, err != nil, "record --force took a spool that is a link to %s", target)
		message := memprofIn(t, exit.Usage, "record", "--finish", dir)
		assert.That(t, strings.Contains(message, "it is a link to "+target), "recover says %q", message)
		if _, err := os.Stat(filepath.Join(target, "thesis")); err != nil {
			t.Errorf("what the spool is a link to was removed: %v", err)
		}
	}
	if _, err := recorder.NewPlace(victim, "", "job", true); err == nil {
		t.Error("a spool elsewhere with a file that is none of memprof's was removed")
	}
	assert.NoError(t, os.Remove(filepath.Join(theirs, "thesis")))
	if _, err := recorder.NewPlace(victim, "", "job", true); err != nil {
		t.Error(err)
	}
	left := namesIn(t, spools)
	assert.That(t, len(left) <= 0, "the recording's own spool is still there: %q", left)
}

func TestAbandonLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	spools := filepath.Join(parent, "spools")
	p, err := recorder.NewPlace(filepath.Join(parent, "run"), spools, "job", false)
	assert.NoError(t, err)
	if target, err := os.Readlink(p.Spool); err != nil || filepath.Dir(target) != spools {
		t.Fatalf("the spool is a link to %q, %v, want a folder in %s", target, err, spools)
	}
	p.Abandon()
	if _, err := os.Stat(p.Dir); err == nil {
		t.Error("the directory made for a job that was not started is still there")
	}
	left, _ := filepath.Glob(filepath.Join(spools, "*"))
	assert.That(t, len(left) <= 0, "the spool is still there: %v", left)
}
