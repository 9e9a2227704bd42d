// Command rings prints, for each package named, how many production files its folder has and the
// largest ring of them: files that all reach each other by the package-level names and methods they
// use. A subject with a door is a set of files outside of any large ring.
//
//	go run ./.ci/rings [-v] ./analysis ./report ./cmd/memprof
//	./analysis  files 20  largest ring 7
//
// With -v it names the ring's files. Packages must build, since names are resolved by type.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("rings: ")
	verbose := flag.Bool("v", false, "name the files of the largest ring")
	flag.Parse()
	for _, folder := range flag.Args() {
		if err := run(os.Stdout, folder, *verbose); err != nil {
			log.Fatalf("%s: %v", folder, err)
		}
	}
}

// run prints the line of one package.
func run(stdout io.Writer, folder string, verbose bool) error {
	uses, err := fileUses(folder)
	if err != nil {
		return err
	}
	ring := largestRing(uses)
	fmt.Fprintf(stdout, "%-40s files %3d  largest ring %3d\n", folder, len(uses), len(ring))
	if verbose && len(ring) > 1 {
		fmt.Fprintln(stdout, "   ", strings.Join(ring, " "))
	}
	return nil
}

// fileUses returns, for each production file of the package, the other files whose declarations it uses.
func fileUses(folder string) (map[string]map[string]bool, error) {
	names, exports, err := list(folder)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(files, filepath.Join(folder, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(files, "gc", open)}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := config.Check(folder, files, parsed, info)
	if err != nil {
		return nil, err
	}
	uses := map[string]map[string]bool{}
	for _, name := range names {
		uses[name] = map[string]bool{}
	}
	for use, object := range info.Uses {
		if object.Pkg() != pkg || !isDeclaration(pkg, object) {
			continue
		}
		from := filepath.Base(files.Position(use.Pos()).Filename)
		to := filepath.Base(files.Position(object.Pos()).Filename)
		if from != to {
			uses[from][to] = true
		}
	}
	return uses, nil
}

// isDeclaration reports whether an object is of the package's own scope, or a method or field of a
// type there: what one file can owe another.
func isDeclaration(pkg *types.Package, object types.Object) bool {
	switch o := object.(type) {
	case *types.Func:
		return true
	case *types.Var:
		return o.IsField() || o.Parent() == pkg.Scope()
	default:
		return o.Parent() == pkg.Scope()
	}
}

// list asks the go command for a package's production files and for the export data of all it imports.
func list(folder string) (names []string, exports map[string]string, err error) {
	out, err := command("list", "-f", `{{range .GoFiles}}{{.}}{{"\n"}}{{end}}`, folder)
	if err != nil {
		return nil, nil, err
	}
	names = strings.Fields(out)
	out, err = command("list", "-deps", "-export", "-f", `{{.ImportPath}} {{.Export}}`, folder)
	if err != nil {
		return nil, nil, err
	}
	exports = map[string]string{}
	for line := range strings.Lines(out) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[path] = file
		}
	}
	return names, exports, nil
}

func command(args ...string) (string, error) {
	var errors bytes.Buffer
	c := exec.Command("go", args...)
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, bytes.TrimSpace(errors.Bytes()))
	}
	return string(out), nil
}

// largestRing returns the greatest set of files that all reach each other, sorted; a single file
// where there is no ring. Reachability by search from each file: packages have tens of files.
func largestRing(uses map[string]map[string]bool) []string {
	reach := map[string]map[string]bool{}
	for file := range uses {
		reach[file] = map[string]bool{}
		reachable(uses, file, reach[file])
	}
	var largest []string
	for file := range uses {
		ring := []string{file}
		for other := range reach[file] {
			if other != file && reach[other][file] {
				ring = append(ring, other)
			}
		}
		slices.Sort(ring)
		if len(ring) > len(largest) || len(ring) == len(largest) && slices.Compare(ring, largest) < 0 {
			largest = ring
		}
	}
	return largest
}

func reachable(uses map[string]map[string]bool, from string, seen map[string]bool) {
	for to := range uses[from] {
		if !seen[to] {
			seen[to] = true
			reachable(uses, to, seen)
		}
	}
}
