package duckdb

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/trace/dataset"
)

// views are the statements of the help topic, each whole.
func views(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../help/fleet.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\nDuckDB,")
	if !found {
		t.Fatal("the topic has no statements of DuckDB")
	}
	return regexp.MustCompile(`(?s)create view .*?;`).FindAllString(after, -1)
}

// The views over the summaries of 1,024 ranks have what the tables have: one query finds the rank that reserves most.
func TestFleet(t *testing.T) {
	const ranks = 1024
	dir := t.TempDir()
	for rank := range ranks {
		name := fmt.Sprintf("rank%d", rank)
		peak := int64(1<<30 + rank<<10)
		if rank == 700 {
			peak = 5 << 30
		}
		d := analysis.DeviceResult{Memory: &analysis.Memory{MaxR: peak, MaxT: peak / 2}, Held: &attribution.Result{}, Allocs: 1}
		d.Peak.R, d.Peak.T = peak, peak/2
		run := filepath.Join(dir, "nodes", fmt.Sprintf("node%03d", rank/8))
		if err := os.MkdirAll(run, 0o755); err != nil {
			t.Fatal(err)
		}
		process := &dataset.Process{ProcessMeta: dataset.ProcessMeta{Name: name, Rank: rank, WorldSize: ranks}, Parts: []dataset.Part{{}}}
		if err := summary.New(process, "host", &analysis.Result{Process: name, Devices: []analysis.DeviceResult{d}}).Write(run); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the views are of one connection's memory
	statements := views(t)
	if len(statements) != 3 {
		t.Fatalf("the topic has %d views, want 3", len(statements))
	}
	for _, statement := range statements {
		if _, err := db.Exec(strings.ReplaceAll(statement, "'nodes/", "'"+dir+"/nodes/")); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for query, want := range map[string]string{
		"select count(distinct process), count(distinct filename) from summary":                    "1024 | 1024",
		"select greatest_of, greatest, least from spread where metric = 'reserved.peak'":           fmt.Sprintf("rank700 | %v | %v", float64(5<<30), float64(1<<30)),
		"select count(*) from ranks where metric = 'allocations' and unit = 'count' and value = 1": "1024",
		"select count(*) from summary where metric = 'duration' and unit = 'ns'":                   "1024",
	} {
		if got := strings.Join(answer(t, db, query, dir), "\n"); got != want {
			t.Errorf("%s:\n%s\nwant %s", query, got, want)
		}
	}
}
