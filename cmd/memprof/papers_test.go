package main

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

var (
	quoted     = regexp.MustCompile("`([^`\n]+)`")
	pathLike   = regexp.MustCompile(`^[\w.*{}-]+(/[\w.*{}-]+)*/?$`)
	source     = regexp.MustCompile(`\w\.(go|c|h|py|js|md|cpp|txt|sh)$`)
	mdLink     = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	mdHeading  = regexp.MustCompile("(?m)^#+ (.*)$")
	namedTopic = regexp.MustCompile("memprof help ([a-z-]+)")
	// A command ends where the job's own begins, or at a quote, a comment or the end of the line.
	namedCommand = regexp.MustCompile("(?m)memprof ([a-z]+)([^\n`#]*?)(?: -- |`|#|$)")
	namedFlag    = regexp.MustCompile(" --([a-z-]+)")
	notInSlug    = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// foreign are paths of libraries that ARCHITECTURE.md names, and a folder that only a find of the fuzzer makes.
var foreign = []string{"apache/arrow-go", "arrow/compute", "gonum/plot", "net/http", "text/template", "testdata/fuzz"}

// papers are the pages of the tree, and how many bytes each may have: a page that is longer is not read.
var papers = map[string]int{
	"README.md": 9 << 10, "ARCHITECTURE.md": 12 << 10, "samples/README.md": 12 << 10,
	".github/CONTRIBUTING.md": 16 << 10,
}

// TestPapersAreShort: what has no room in a page belongs into a package comment, a header, a help topic or samples/results.
func TestPapersAreShort(t *testing.T) {
	for file, most := range papers {
		size := len(read(t, file))
		assert.That(t, size <= most, "%s has %d bytes, at most %d are allowed", file, size, most)
	}
}

// results are the pages of samples/results.
func results(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../samples/results/*.md")
	assert.Must(t, err == nil && len(files) != 0, "samples/results has no pages: %v", err)
	for i := range files {
		files[i] = strings.TrimPrefix(filepath.ToSlash(files[i]), "../../")
	}
	return files
}

// TestDocumentedPaths demands that the files, folders, verbs and targets exist that the pages about the code name. A path may be
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
	for _, file := range []string{"ARCHITECTURE.md", "README.md", ".github/CONTRIBUTING.md"} {
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
			assert.That(t, endings[name] || (strings.Contains(name, "*") && slices.ContainsFunc(bases, matches)),
				"%s: `%s`: there is no such file or folder", file, text)
		}
	}
}

// TestDocumentedLinks demands that each link between the pages of the tree leads to a file and, behind #, to a heading.
func TestDocumentedLinks(t *testing.T) {
	for _, file := range append(results(t), slices.Collect(maps.Keys(papers))...) {
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

// TestDocumentedCommands demands that the topics, verbs and flags exist that the pages and the help topics name.
func TestDocumentedCommands(t *testing.T) {
	topics, err := filepath.Glob("help/*.txt")
	assert.NoError(t, err)
	files := append(results(t), slices.Collect(maps.Keys(papers))...)
	for _, topic := range topics {
		files = append(files, "cmd/memprof/"+topic)
	}
	for _, file := range files {
		text := read(t, file)
		root := newRootCommand()
		for _, found := range namedTopic.FindAllStringSubmatch(text, -1) {
			topic, rest, err := root.Find(found[1:])
			assert.That(t, err == nil && topic != root && len(rest) <= 0, "%s: %s: no such topic", file, found[0])
		}
		for _, found := range namedCommand.FindAllStringSubmatch(text, -1) {
			verb, rest, err := root.Find(found[1:2])
			if err != nil || verb == root || verb.Name() == "help" || len(rest) > 0 {
				continue // prose: what memprof does
			}
			if below, _, err := root.Find(strings.Fields(found[0])[1:min(3, len(strings.Fields(found[0])))]); err == nil && below.Parent() == verb {
				verb = below // lab replay, kv calibrate
			}
			verb.InitDefaultHelpFlag()
			for _, flag := range namedFlag.FindAllStringSubmatch(found[2], -1) {
				assert.That(t, verb.Flags().Lookup(flag[1]) != nil, "%s: memprof %s has no flag --%s", file, verb.Name(), flag[1])
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

// read returns a file of the repository's root.
func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../..", name))
	assert.NoError(t, err)
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
	assert.NoError(t, err)
	return names
}
