package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/renames"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

// earlier returns the lines of a file of testdata/earlier, which earlier versions of memprof printed.
func earlier(t *testing.T, name string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(mustRead(t, "testdata/earlier/"+name))), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
}

// A metric of an earlier version is one of today's, or is an alias of one, or is refused since its meaning
// changed. The table has no name that no earlier version had.
func TestEarlierMetrics(t *testing.T) {
	names := earlier(t, "metrics.txt")
	for _, name := range names {
		_, known := gate.LookupMetric(name)
		renamed, ok := renames.Metrics.Lookup(name)
		if refused := ok && renamed.Changed != "" && renamed.Old != renamed.New; known == refused {
			t.Errorf("%s: is a metric or an alias: %v, is refused: %v", name, known, refused)
		}
	}
	for _, row := range renames.Metrics {
		if !slices.Contains(names, row.Old) {
			t.Errorf("no earlier version has the metric %s", row.Old)
		}
	}
}

// A baseline that an earlier version wrote with the earlier names holds the gates with either names.
func TestEarlierBaseline(t *testing.T) {
	for _, names := range [][]string{
		{"external.peak", "books.context", "books.unexplained", "reserved.peak"},
		{"other_libraries.peak", "accounting.driver_overhead", "accounting.unexplained", "reserved.peak"},
	} {
		args := []string{"check", "../../samples/gpt2", "--baseline", "testdata/earlier/baseline.json"}
		for _, name := range names {
			args = append(args, "--gate", name+" < baseline + 1%")
		}
		var stdout, stderr bytes.Buffer
		if code := run(&stdout, &stderr, args); code != exit.Fine {
			t.Errorf("%s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout.String(), stderr.String())
		}
	}
}

// Each place in a JSON document of an earlier version is one of today's, or the table has what became of it.
// The table has no path that no earlier version had.
func TestEarlierJSON(t *testing.T) {
	today := map[string][]string{}
	for _, name := range schemaNames() {
		for line := range strings.Lines(readText(schemas, "schema/"+name+".txt")) {
			path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			today[name] = append(today[name], strings.TrimSuffix(path, "?"))
		}
	}
	was := map[string][]string{}
	for _, line := range earlier(t, "json.txt") {
		document, path, _ := strings.Cut(line, " ")
		was[document] = append(was[document], path)
		renamed, ok := renames.JSON[document].LookupPath(path)
		switch {
		case ok && !slices.Contains(today[document], renamed.New):
			t.Errorf("%s: %s became %s, which is not there", document, path, renamed.New)
		case ok && slices.Contains(today[document], path) && renamed.Changed == "":
			t.Errorf("%s: %s is there, and became %s", document, path, renamed.New)
		case !ok && !slices.Contains(today[document], path):
			t.Errorf("%s: %s is gone, and the table does not say where to", document, path)
		}
	}
	for document, table := range renames.JSON {
		for _, row := range table {
			if path, _, _ := strings.Cut(row.Old, "="); !slices.Contains(was[document], path) {
				t.Errorf("%s: no earlier version has %s", document, row.Old)
			}
		}
	}
}

// A flag of an earlier version is a flag.
func TestEarlierFlags(t *testing.T) {
	for _, line := range earlier(t, "flags.txt") {
		words := strings.Fields(line)
		last := len(words) - 1
		verb, rest, err := newRootCommand().Find(words[1:last])
		if err != nil || len(rest) > 0 {
			t.Errorf("%s: %v, %v", line, rest, err)
			continue
		}
		verb.InitDefaultHelpFlag()
		if name := strings.TrimPrefix(words[last], "--"); verb.Flags().Lookup(name) == nil && verb.InheritedFlags().Lookup(name) == nil {
			t.Errorf("%s: there is no such flag", line)
		}
	}
}
