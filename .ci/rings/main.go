// Command rings fails if memprof has too many packages, or if a package has a large ring: production files that all reach each
// other by the package-level names, methods and fields that they use, so that none of them can be understood alone.
//
//	go run ./.ci/rings [-v] [PACKAGE ...]
//
// Without packages it looks at all, and counts them. With -v it prints a line for each. Packages must build, since names are
// resolved by type.
package main

import (
	"encoding/json"
	"errors"
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

const (
	mostFiles    = 10 // of a ring
	mostPackages = 60 // of memprof, those that only tests import not counted
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("rings: ")
	verbose := flag.Bool("v", false, "print a line for each package")
	flag.Parse()
	if err := run(os.Stdout, flag.Args(), *verbose); err != nil {
		log.Fatal(err)
	}
}

// run returns an error that names each ring that is too large.
func run(stdout io.Writer, patterns []string, verbose bool) error {
	all := len(patterns) == 0
	if all {
		patterns = []string{"./...", "./.ci/dist", "./.ci/rings"} // a pattern skips folders that begin with a dot
	}
	packages, err := list(patterns)
	if err != nil {
		return err
	}
	var wrong []error
	count := 0
	check := newChecker(packages)
	for _, p := range packages {
		if p.DepOnly || len(p.GoFiles) == 0 {
			continue
		}
		if !strings.HasSuffix(p.ImportPath, "test") && !strings.Contains(p.ImportPath, "test/") {
			count++
		}
		uses, err := check.fileUses(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		ring := largestRing(uses)
		if verbose {
			fmt.Fprintf(stdout, "%-60s files %3d  largest ring %3d\n", p.ImportPath, len(uses), len(ring))
		}
		if len(ring) > mostFiles {
			wrong = append(wrong, fmt.Errorf("%s has a ring of %d files, at most %d may all reach each other: %s", p.ImportPath, len(ring), mostFiles, strings.Join(ring, " ")))
		}
	}
	if all && count > mostPackages {
		wrong = append(wrong, fmt.Errorf("there are %d packages, at most %d may be: move what has one importer to it", count, mostPackages))
	}
	fmt.Fprintf(stdout, "%d packages\n", count)
	return errors.Join(wrong...)
}

// listed is a package as the go command describes it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool // it was not asked for: another one imports it
}

// list asks the go command for packages and for the export data of all that they import.
func list(patterns []string) ([]*listed, error) {
	c := exec.Command("go", append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,DepOnly"}, patterns...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []*listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := new(listed)
		err := decoder.Decode(p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// checker resolves the names of packages by type.
type checker struct {
	files  *token.FileSet
	config types.Config
}

func newChecker(packages []*listed) *checker {
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	files := token.NewFileSet()
	return &checker{files, types.Config{Importer: importer.ForCompiler(files, "gc", open)}}
}

// fileUses returns, for each production file of a package, the other files whose declarations it uses.
func (c *checker) fileUses(p *listed) (map[string]map[string]bool, error) {
	uses := map[string]map[string]bool{}
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
		uses[name] = map[string]bool{}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := c.config.Check(p.ImportPath, c.files, parsed, info)
	if err != nil {
		return nil, err
	}
	for use, object := range info.Uses {
		if object.Pkg() != pkg || !isDeclaration(pkg, object) {
			continue
		}
		from := filepath.Base(c.files.Position(use.Pos()).Filename)
		to := filepath.Base(c.files.Position(object.Pos()).Filename)
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
