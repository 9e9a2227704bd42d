package twin_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

const (
	goFolder = "../../bfc"
	cFolder  = "../capture/bfc"
)

// goFiles are files of the allocator in Go that have no twin, and why.
var goFiles = map[string]string{
	"doc":     "the specification of both",
	"device":  "a model of a device, for replays and tests",
	"memory":  "struct bfc_memory stands in bfc.h",
	"garbage": "the hook releases no regions",
	"chunk":   "struct bfc_chunk, bfc_region and bfc_page stand in internal.h",
	"ranges":  "in C a part of unmapped: nothing else there keeps ranges",
}

// twins are the types of both allocators that are the same, by their names in Go.
var twins = map[string]string{
	"Allocator": "bfc", "Options": "bfc_options", "Block": "bfc_block", "Stats": "bfc_stats",
	"chunk": "bfc_chunk", "region": "bfc_region", "freeSet": "bfc_freeset", "liveTable": "bfc_live", "liveSlot": "bfc_live_slot",
	"byteRange": "bfc_range", "Policy": "bfc_policy", "Streams": "bfc_streams", "Arena": "bfc_arena", "ArenaPolicy": "bfc_arena_policy",
}

// apart are the fields that only one of two twins has, as TYPE.FIELD by the name of the type in Go, and why.
var apart = map[string]string{
	"Options.trim": "C has what the allocator reads of it: trims", "Options.trims": "Go has the whole trim",
	"Options.split": "in C a truth", "Options.always_split": "in Go a Split",
	"Options.fragmentation_fraction": "of replays of requests by hand", "Options.garbage_collection": "of replays of requests by hand",
	"Policy.idle_ns": "in Go a field of Trim", "Allocator.max_slack": "in C a constant",
	"ArenaPolicy.trim": "in Go in Options", "ArenaPolicy.idle_ns": "see Policy.idle_ns",

	"Allocator.granularity": "in C a field of the memory",
	"Allocator.paged":       "a scratch list of free chunks with whole pages, which C finds by a walk over all chunks",
	"Allocator.last_id":     "C numbers no blocks: torch and the trace know them by address", "Block.id": "see Allocator.last_id",
	"Block.chunk": "lets the hook free a block without a look-up", "Allocator.numbered": "of replays, which free by number", "Allocator.newest": "see Allocator.numbered",
	"chunk.note": "the hook's own, of a block", "chunk.id": "see Allocator.last_id", "chunk.state": "in Go a value of id",

	// Both link free chunks into treaps. In C the links stand in the chunk, one cache line; a chunk is linked
	// when the next request needs it, not when it becomes free.
	"freeSet.nodes": "in C in the chunks", "chunk.child": "in Go in freeSet", "chunk.priority": "in Go in freeSet",

	"Stats.num_allocs": "replays print it; the hook has arena/counters.h", "Stats.largest_alloc": "see Stats.num_allocs",
	"Stats.peak_bytes_in_use": "see Stats.num_allocs", "Stats.peak_reserved": "see Stats.num_allocs",

	"Allocator.missing": "only Go: C maps the gaps as it finds them",
	"Allocator.looked":  "only C asks the memory what is over: a replay reads it in the trace", "Allocator.wanted": "see Allocator.looked",
	"Allocator.snapshot": "only C answers which block has an address inside of it",
	"Allocator.used":     "in Go the length of chunks",
}

// length is a field that C needs beside an array, and that a slice of Go has in itself.
var length = regexp.MustCompile(`^(\w+_)?(count|capacity)$`)

// TestNames compares the names of files and fields. What has the same name is the same in both, so that a reader
// of one finds his way in the other.
func TestNames(t *testing.T) {
	ours, theirs := stems(t, goFolder, ".go"), stems(t, cFolder, ".c")
	for _, name := range ours {
		_, alone := goFiles[name]
		assert.That(t, alone != slices.Contains(theirs, name), "bfc/%s.go: has a twin %v, is listed as one without %v", name, !alone, alone)
	}
	for _, name := range theirs {
		assert.That(t, slices.Contains(ours, name), "capture/bfc/%s.c has no twin bfc/%s.go", name, name)
	}
	inGo, inC := goStructs(t), cStructs(t)
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(twins)) {
		mine, other := inGo[name], inC[twins[name]]
		if len(mine) == 0 || len(other) == 0 {
			t.Errorf("%s or struct %s is not found", name, twins[name])
			continue
		}
		for _, field := range slices.Concat(mine, other) {
			if slices.Contains(mine, field) == slices.Contains(other, field) || length.MatchString(field) {
				continue
			}
			key := name + "." + field
			if used[key] = true; apart[key] == "" {
				t.Errorf("%s: only one of %s and struct %s has it", key, name, twins[name])
			}
		}
	}
	for key := range apart {
		assert.That(t, used[key], "%s is listed as a field of one allocator, and is of both or none", key)
	}
}

// stems returns the names of the files of a folder that end so, without the end; tests are left out.
func stems(t *testing.T, folder, end string) []string {
	paths, err := filepath.Glob(filepath.Join(folder, "*"+end))
	if err != nil || len(paths) == 0 {
		t.Fatal(folder, err)
	}
	var names []string
	for _, path := range paths {
		if name := strings.TrimSuffix(filepath.Base(path), end); !strings.HasSuffix(name, "_test") {
			names = append(names, name)
		}
	}
	return names
}

// goStructs returns the fields of each struct type of package bfc, in C's spelling.
func goStructs(t *testing.T) map[string][]string {
	found := map[string][]string{}
	for _, name := range stems(t, goFolder, ".go") {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(goFolder, name+".go"), nil, parser.SkipObjectResolution)
		assert.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.TypeSpec)
			if !is {
				return true
			}
			if of, is := spec.Type.(*ast.StructType); is {
				found[spec.Name.Name] = goFields(of)
			}
			return true
		})
	}
	return found
}

func goFields(of *ast.StructType) []string {
	var fields []string
	for _, f := range of.Fields.List {
		for _, name := range f.Names {
			fields = append(fields, snake(name.Name))
		}
		if embedded, is := f.Type.(*ast.Ident); is && len(f.Names) == 0 {
			fields = append(fields, snake(embedded.Name))
		}
	}
	return fields
}

// snake spells a name of Go as C does: nextRegion is next_region, and ID is id.
func snake(name string) string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if unicode.IsUpper(r) && lower {
			b.WriteByte('_')
		}
		lower = unicode.IsLower(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

var (
	cComment    = regexp.MustCompile(`//[^\n]*`)
	cStruct     = regexp.MustCompile(`(?ms)^struct (\w+) \{\n(.*?)^\};`)
	cUnion      = regexp.MustCompile(`(?s)union \{(.*?)\};`)
	cPointer    = regexp.MustCompile(`\(\*(\w+)\)\([^;]*\)`) // a member that is a function
	cDeclarator = regexp.MustCompile(`(\w+)(\[\w+\])?$`)
)

// cStructs returns the fields of each struct in the headers of the allocator in C.
func cStructs(t *testing.T) map[string][]string {
	found := map[string][]string{}
	for _, name := range stems(t, cFolder, ".h") {
		text, err := os.ReadFile(filepath.Join(cFolder, name+".h"))
		assert.NoError(t, err)
		for _, match := range cStruct.FindAllStringSubmatch(cComment.ReplaceAllString(string(text), ""), -1) {
			body := cPointer.ReplaceAllString(cUnion.ReplaceAllString(match[2], "$1"), "$1")
			for _, declaration := range strings.Split(body, ";") {
				for _, declarator := range strings.Split(strings.TrimSpace(declaration), ",") {
					if field := cDeclarator.FindStringSubmatch(strings.TrimSpace(declarator)); field != nil {
						found[match[1]] = append(found[match[1]], field[1])
					}
				}
			}
		}
	}
	return found
}
