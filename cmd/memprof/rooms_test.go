package main

import (
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// room is a package, or a package and all below it, and what it may import of ours.
type room struct {
	name string
	may  []string
}

// rooms says what each package may import of ours. A package obeys the first row that matches it, and "x/..." is x and all below it,
// as in go build. Imports run downwards: from the command line to reports, to the analysis, to traces and the allocator.
var rooms = []room{
	{"bfc/...", []string{"bfc"}},
	{"trace/columns", nil},
	{"trace/outfile", nil},
	{"trace/...", []string{"trace/..."}},
	{"hooks/rerun", nil},
	{"hooks/...", []string{"hooks/...", "trace/..."}},
	// Words and numbers as people read them.
	{"analysis/plain", nil},
	// The ledger knows no tracker.
	{"analysis/ledger", []string{"trace", "bfc"}},
	{"analysis/snapshot/pickle", nil},
	// KV caches are simulated: nothing there traces.
	{"analysis/kvcache/...", []string{"analysis/kvcache/...", "analysis/plain", "bfc", "trace/tracetest/assert"}},
	{"analysis/...", []string{"analysis/...", "bfc", "trace/..."}},
	{"report/...", []string{"report/...", "analysis/...", "bfc", "trace/..."}},
	{"cmd/memprof/...", []string{"cmd/memprof/...", "report/...", "analysis/...", "bfc/...", "trace/...", "hooks/..."}},
}

// strangers are pairs that the rows above would allow. The judge shares nothing with the analysis that it is compared with.
var strangers = [][2]string{
	{"analysis/verify", "analysis"},
	{"analysis/verify", "analysis/ledger"},
}

// TestRooms holds the imports of each package to the tables above.
func TestRooms(t *testing.T) {
	imports := importsOf(t)
	obeyed := map[string]bool{}
	for name, used := range imports {
		row := slices.IndexFunc(rooms, func(r room) bool { return matches(r.name, name) })
		if row < 0 {
			t.Errorf("%s is in no room: give it a row", name)
			continue
		}
		obeyed[rooms[row].name] = true
		for _, of := range used {
			assert.That(t, slices.ContainsFunc(rooms[row].may, func(may string) bool { return matches(may, of) }),
				"%s imports %s, which the row of %s does not allow", name, of, rooms[row].name)
		}
	}
	for _, row := range rooms {
		assert.That(t, obeyed[row.name], "no package is in the room %s: take its row away", row.name)
	}
	for _, pair := range strangers {
		assert.That(t, imports[pair[0]] != nil && imports[pair[1]] != nil, "%s or %s is no package", pair[0], pair[1])
		assert.That(t, !slices.Contains(imports[pair[0]], pair[1]), "%s imports %s, of which it must be independent", pair[0], pair[1])
	}
}

// matches says whether a package is what a pattern like "trace/..." means.
func matches(pattern, name string) bool {
	above, all := strings.CutSuffix(pattern, "/...")
	return name == above || all && strings.HasPrefix(name, above+"/")
}

// importsOf returns what each package imports of ours, both as folders of the repository.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	const module = "github.com/memprof/memprof/"
	imports := map[string][]string{}
	for _, name := range treeOf(t) {
		dir := path.Dir(name)
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, ".") || strings.Contains(dir, "testdata") || dir == "." {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", name), nil, parser.ImportsOnly)
		assert.NoError(t, err)
		if file.Name.Name == "main" && dir != "cmd/memprof" {
			continue
		}
		used := imports[dir]
		if used == nil {
			used = []string{}
		}
		for _, spec := range file.Imports {
			if of, err := strconv.Unquote(spec.Path.Value); err == nil && strings.HasPrefix(of, module) && !slices.Contains(used, of[len(module):]) {
				used = append(used, of[len(module):])
			}
		}
		imports[dir] = used
	}
	return imports
}
