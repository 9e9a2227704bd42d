package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	quoted    = regexp.MustCompile("`([^`\n]+)`")
	quotedDir = regexp.MustCompile("`([^`]+)/`")
	pathLike  = regexp.MustCompile(`^[\w.*{}-]+(/[\w.*{}-]+)*/?$`)
	source    = regexp.MustCompile(`\w\.(go|c|h|py|js|md|cpp|txt|sh)$`)
	roomRow   = regexp.MustCompile("(?m)^\\| (`[^|]*) \\| [^|]* \\| ([^|]*) \\|$")
	mdLink    = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	mdHeading = regexp.MustCompile("(?m)^#+ (.*)$")
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	onlyRooms = regexp.MustCompile("^`[^`]+`(, `[^`]+`)*(, not each other)?$")
)

// foreign are paths of libraries that ARCHITECTURE.md names, and a folder that only a find of the fuzzer makes.
var foreign = []string{"apache/arrow-go", "arrow/compute", "gonum/plot", "net/http", "text/template", "testdata/fuzz"}

// TestDocumentedPaths demands that the files, folders and verbs exist that ARCHITECTURE.md and the README name. A path may be
// written from any folder on: what counts is that some file or folder ends so.
func TestDocumentedPaths(t *testing.T) {
	endings := map[string]bool{}
	var bases []string
	for _, name := range treeOf(t) {
		bases = append(bases, path.Base(name))
		for {
			endings[name] = true
			_, rest, below := strings.Cut(name, "/")
			if !below {
				break
			}
			name = rest
		}
	}
	root, targets := newRootCommand(), read(t, "Makefile")
	for _, file := range []string{"ARCHITECTURE.md", "README.md"} {
		for _, found := range quoted.FindAllStringSubmatch(read(t, file), -1) {
			text := strings.TrimPrefix(found[1], "./")
			if words := strings.Fields(text); len(words) > 1 && !strings.HasPrefix(words[1], "-") {
				verb, _, err := root.Find(words[1:2])
				switch {
				case words[0] == "memprof" && (err != nil || verb == root):
					t.Errorf("%s: `%s`: memprof has no %s", file, text, words[1])
				case words[0] == "make" && !strings.Contains(targets, "\n"+words[1]+":"):
					t.Errorf("%s: `%s`: the Makefile has no %s", file, text, words[1])
				}
			}
			if !pathLike.MatchString(text) || !strings.Contains(text, "/") && !source.MatchString(text) || slices.Contains(foreign, text) {
				continue
			}
			name := strings.TrimSuffix(text, "/")
			matches := func(base string) bool { ok, _ := path.Match(name, base); return ok }
			if !endings[name] && !(strings.Contains(name, "*") && slices.ContainsFunc(bases, matches)) {
				t.Errorf("%s: `%s`: there is no such file or folder", file, text)
			}
		}
	}
}

// TestDocumentedLinks demands that each link between the pages of the tree leads to a file and, behind #, to a heading.
func TestDocumentedLinks(t *testing.T) {
	for _, file := range []string{"ARCHITECTURE.md", "README.md", "samples/README.md"} {
		for _, found := range mdLink.FindAllStringSubmatch(read(t, file), -1) {
			name, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(name, ":") {
				continue // of the web
			}
			to := file
			if name != "" {
				to = path.Join(path.Dir(file), name)
			}
			if _, err := os.Stat(filepath.Join("../..", to)); err != nil {
				t.Errorf("%s: (%s): there is no such file", file, found[1])
			} else if anchor != "" && !slices.Contains(anchorsOf(read(t, to)), anchor) {
				t.Errorf("%s: (%s): %s has no such heading", file, found[1], to)
			}
		}
	}
}

// anchorsOf returns the names by which links reach the headings of a page, as GitHub makes them.
func anchorsOf(page string) []string {
	var anchors []string
	for _, heading := range mdHeading.FindAllStringSubmatch(page, -1) {
		anchors = append(anchors, strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-"))
	}
	return anchors
}

// TestRooms holds the table of rooms of ARCHITECTURE.md to the imports: each package is named in the file, and one whose row
// lists what it may know imports no more of ours.
func TestRooms(t *testing.T) {
	text := read(t, "ARCHITECTURE.md")
	imports := importsOf(t)
	for _, row := range roomRow.FindAllStringSubmatch(text, -1) {
		var rooms []string
		for _, found := range quotedDir.FindAllStringSubmatch(row[1], -1) {
			name := found[1]
			if len(rooms) > 0 && imports[name] == nil { // `analysis/kvcache/paged/`, `mapped/`
				name = path.Join(path.Dir(rooms[0]), name)
			}
			rooms = append(rooms, name)
		}
		may := []string{}
		switch {
		case onlyRooms.MatchString(row[2]):
			for _, found := range quoted.FindAllStringSubmatch(row[2], -1) {
				may = append(may, strings.TrimSuffix(found[1], "/"))
			}
		case row[2] != "nothing of ours":
			continue // said in other words
		}
		for _, room := range rooms {
			for _, used := range imports[room] {
				if !slices.Contains(may, used) {
					t.Errorf("ARCHITECTURE.md: `%s/` imports %s, which its row does not name: take the import away, or add it to the row", room, used)
				}
			}
		}
	}
	named := func(dir string) bool {
		return strings.Contains(text, "`"+dir+"/`") || strings.Contains(text, "`"+dir+"`")
	}
	for room := range imports {
		above := path.Dir(room) // stands for its packages where it is none itself, as the folder of fonts
		if !named(room) && !named(path.Base(room)) && (imports[above] != nil || !named(above)) {
			t.Errorf("ARCHITECTURE.md names no package %s: give it a row, or a word in that of the room above it", room)
		}
	}
}

// read returns a file of the repository's root.
func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// treeOf lists the files and folders of the repository, without git's.
func treeOf(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Name() == ".git" && entry.IsDir() {
			return filepath.SkipDir
		}
		names = append(names, strings.TrimPrefix(filepath.ToSlash(name), "../../"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
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
		if err != nil {
			t.Fatal(err)
		}
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
