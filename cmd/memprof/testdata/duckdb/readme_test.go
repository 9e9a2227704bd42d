// Package duckdb runs the DuckDB commands of the README on a recording.
package duckdb

import (
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	_ "github.com/duckdb/duckdb-go/v2"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
)

// queries are those of the lines of the README that call duckdb.
func queries(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, match := range regexp.MustCompile(`(?m)^    duckdb -c "(.*)"$`).FindAllStringSubmatch(string(text), -1) {
		queries = append(queries, match[1])
	}
	return queries
}

// answer runs a query on the recording in dir, and gives all rows as lines of cells.
func answer(t *testing.T, db *sql.DB, query, dir string) (lines []string) {
	t.Helper()
	rows, err := db.Query(strings.ReplaceAll(query, "'run/", "'"+dir+"/"))
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		cells := make([]any, len(names))
		for i := range cells {
			cells[i] = new(any)
		}
		if err := rows.Scan(cells...); err != nil {
			t.Fatal(err)
		}
		var line []string
		for _, cell := range cells {
			line = append(line, fmt.Sprint(*cell.(*any)))
		}
		lines = append(lines, strings.Join(line, " | "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// A recording of 3 parts: the queries must count what the reader of package trace does.
func TestReadme(t *testing.T) {
	const events = 5000
	dir := t.TempDir()
	all, texts := tracetest.Training(events)
	tracetest.WriteRun(t, dir, tracetest.Process{
		Meta: dataset.ProcessMeta{Name: "pid4711", Rank: -1, WorldSize: -1}, Events: all, Texts: texts, Options: dataset.WriterOptions{PartEvents: 2000},
	})
	requested, allocs := map[string]int64{}, int64(0)
	for _, e := range all {
		if e.Kind == trace.KindAlloc {
			allocs++
			requested[texts[e.Context]] += e.Requested
		}
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all3 := queries(t)
	if len(all3) != 3 {
		t.Fatalf("the README has %d DuckDB commands, want 3: %q", len(all3), all3)
	}

	kinds := answer(t, db, all3[0], dir)
	if text := strings.Join(kinds, "\n"); !strings.Contains(text, "alloc | ") || !strings.Contains(text, "iteration | ") {
		t.Errorf("kinds:\n%s", text)
	}
	contexts := answer(t, db, all3[1], dir)
	if len(contexts) != 10 {
		t.Fatalf("%d contexts, want 10", len(contexts))
	}
	name, _, _ := strings.Cut(contexts[0], " | ")
	if requested[name] == 0 {
		t.Errorf("the first context is %q, which asked for nothing", contexts[0])
	}
	if once := answer(t, db, all3[2], dir); len(once) != events {
		t.Errorf("%d rows without those that restate, want %d", len(once), events)
	}
	whole := answer(t, db, "select count(*) from ("+all3[2]+") where kind = 'alloc'", dir)
	if want := fmt.Sprint(allocs); whole[0] != want {
		t.Errorf("%s allocations, want %s", whole[0], want)
	}
}
