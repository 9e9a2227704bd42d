package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

const recipes = ".github/CONTRIBUTING.md"

var (
	recipePatch = regexp.MustCompile("(?ms)^```diff\n(.*?)^```$")
	// A step of a recipe names a file, then what has to be there: "1. `trace/live.go`, `Live`: what it does".
	recipeStep  = regexp.MustCompile(`(?m)^\d+\. (.*?):`)
	recipePlace = regexp.MustCompile("`([^`]+)`, `(\\w+)`")
)

// TestRecipePlaces demands of each step of a recipe that its files have what it names.
func TestRecipePlaces(t *testing.T) {
	for _, step := range recipeStep.FindAllStringSubmatch(read(t, recipes), -1) {
		places := recipePlace.FindAllStringSubmatch(step[1], -1)
		if len(places) == 0 && !strings.Contains(step[1], "(new)") && !strings.Contains(step[1], "analysis/verify/") {
			t.Errorf("%s: the step %q names no place", recipes, step[1])
		}
		for _, place := range places {
			assert.That(t, regexp.MustCompile(`\b`+place[2]+`\b`).MatchString(read(t, place[1])), "%s: %s has no %s", recipes, place[1], place[2])
		}
	}
}

// TestRecipes applies all patches of the recipes, builds memprof with them, and calls what they add.
func TestRecipes(t *testing.T) {
	if testing.Short() {
		t.Skip("builds memprof")
	}
	root, err := filepath.Abs("../..")
	assert.NoError(t, err)
	dir := t.TempDir()
	for from, to := range map[string]string{"samples/alexnet": "run", "hooks/python": "hooks/python", "hooks/capture": "hooks/capture"} {
		assert.NoError(t, os.CopyFS(filepath.Join(dir, to), os.DirFS(filepath.Join(root, from))))
	}
	patched := patchedFiles(t)
	overlay := map[string]string{}
	for name, text := range patched {
		file := filepath.Join(dir, filepath.FromSlash(name))
		writeFile(t, file, text)
		overlay[filepath.Join(root, filepath.FromSlash(name))] = file
	}
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	assert.NoError(t, err)
	writeFile(t, filepath.Join(dir, "overlay.json"), string(data))
	binary := filepath.Join(dir, "memprof")
	// Without optimization: most of memprof is compiled again, for a few short commands.
	runIn(t, root, "go", "build", "-gcflags=github.com/memprof/memprof/...=-N -l -dwarf=false -c=1",
		"-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./cmd/memprof")

	for _, c := range []struct{ want, args string }{
		{"A SAMPLE\n", "sample --loud"},
		{"\n  sample ", "--help"},
		{"sample.count", "check --list"},
		{"1635 allocations", "report --section sample run"},
		{`"sample": 1635`, "report --json run"},
		{"pid9011\n", "export sample run"},
		{"A topic explains", "help sample2"},
		{"the job called memprof_sample\n  requested     its number\n", "help events"},
	} {
		out := runIn(t, dir, binary, strings.Fields(c.args)...)
		assert.That(t, strings.Contains(out, c.want), "memprof %s has no %q:\n%.1000s", c.args, c.want, out)
	}
	compileHook(t, dir, patched)
	runIn(t, filepath.Join(dir, "hooks", "python"), "python3", "-B", "-m", "unittest", "tests.test_calls")
}

// compileHook compiles the C files that patches change, with the header that the kinds would be written to.
func compileHook(t *testing.T, dir string, patched map[string]string) {
	t.Helper()
	const header = "hooks/capture/spool/record.h"
	record := strings.Replace(read(t, header), "enum memprof_kind {\n", "enum memprof_kind {\n  MEMPROF_SAMPLE = 39,\n", 1)
	writeFile(t, filepath.Join(dir, header), record)
	for name := range patched {
		if strings.HasSuffix(name, ".c") {
			runIn(t, dir, "cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
				"-I", filepath.Join(dir, "hooks", "capture"), filepath.Join(dir, name))
		}
	}
}

// patchedFiles are the files that the recipes change or make, as they are with all patches.
func patchedFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, found := range recipePatch.FindAllStringSubmatch(read(t, recipes), -1) {
		patch, isNew := strings.CutPrefix(found[1], "--- /dev/null\n")
		name, patch, ok := strings.Cut(strings.TrimPrefix(patch, "+++ "), "\n")
		assert.Must(t, ok, "%s: a patch without a file: %q", recipes, found[1])
		if files[name] == "" && !isNew {
			files[name] = read(t, name)
		}
		text, err := apply(files[name], patch)
		assert.Must(t, err == nil, "%s: the patch of %s: %v", recipes, name, err)
		files[name] = text
	}
	return files
}

// apply returns a text with the lines of a patch that begin with +: behind the line of the text that begins as the patch's line
// before them, or before the one that begins as the line behind them. One such line has to be there.
func apply(text, patch string) (string, error) {
	var added strings.Builder
	at := -1 // where they go
	insert := func() {
		if at < 0 {
			return
		}
		text = text[:at] + added.String() + text[at:]
		added.Reset()
		at = -1
	}
	for line := range strings.Lines(patch) {
		if rest, ok := strings.CutPrefix(line, "+"); ok {
			added.WriteString(rest)
			continue
		}
		insert()
		begin := "\n" + strings.TrimSuffix(strings.TrimPrefix(line, " "), "\n")
		if n := strings.Count(text, begin); n != 1 {
			return "", fmt.Errorf("%d lines begin with %q, want one", n, begin[1:])
		}
		found := strings.Index(text, begin) + 1
		if added.Len() > 0 { // they stand before it
			at = found
			insert()
			continue
		}
		at = found + strings.Index(text[found:], "\n") + 1
	}
	if text == "" {
		return added.String(), nil // a new file
	}
	if at < 0 && added.Len() > 0 {
		return "", fmt.Errorf("lines without a place: %q", added.String())
	}
	insert()
	return text, nil
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	assert.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	assert.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

// runIn runs a command in a folder and returns what it printed.
func runIn(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	assert.Must(t, err == nil, "%s: %v\n%s", cmd, err, out)
	return string(out)
}
