package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPlaceForce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [name]*")
	first, err := newPlace(dir, "", "job", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"run.json", "pid1-0000.parquet", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(first.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := newPlace(dir, "", "job", false); err == nil {
		t.Fatal("a recording would have been written over")
	}
	if _, err := newPlace(dir, "", "job", true); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"run.json": false, "pid1-0000.parquet": false, "notes.txt": true, "spool": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("after --force: %s there: %v, want %v", name, err == nil, want)
		}
	}
}

// TestForeignSpoolLink: a recording from somebody else must not make memprof delete what
// its spool points to.
func TestForeignSpoolLink(t *testing.T) {
	precious, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(precious, filepath.Join(dir, "spool")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(precious, "thesis"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newPlace(dir, "", "job", true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(precious, "thesis")); err != nil {
		t.Error("--force deleted what a foreign link points to")
	}
}

func TestAbandonLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	spools := filepath.Join(parent, "spools")
	p, err := newPlace(filepath.Join(parent, "run"), spools, "job", false)
	if err != nil {
		t.Fatal(err)
	}
	if target := spoolTarget(p.spool); filepath.Dir(target) != spools {
		t.Fatalf("the spool is a link to %q, want a folder in %s", target, spools)
	}
	p.abandon()
	if _, err := os.Stat(p.dir); err == nil {
		t.Error("the directory made for a job that was not started is still there")
	}
	if left, _ := filepath.Glob(filepath.Join(spools, "*")); len(left) > 0 {
		t.Errorf("the spool is still there: %v", left)
	}
}
