package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/memprof/memprof/analysis/plain"
)

// FileName is what `memprof check` looks for, from the working directory upward.
const FileName = "memprof.yaml"

// File is what a file of gates says:
//
//	without: [job.exit]              # as --without
//	aggregate: median                # of several runs: median, max or min
//	baseline: memprof-baseline.json  # relative to this file
//	gates:
//	  - waste.external < 5%
//	  - gate: reserved.peak < baseline + 2%
//	    severity: warn               # error is the default
//	    rank: all                    # worst, all, mean or a number, as --rank
//	  - gate: reserved.peak < 10GiB
//	    tag: kv                      # or phase: NAME; or in the gate, reserved.peak{tag=kv} < 10GiB
//	    job: train*                  # recordings with a directory or command like that
//
// Mistakes in it are errors with their lines and columns, all of them, before any recording is read.
type File struct {
	path       string
	Gates      []Gate
	Without    []string
	Aggregate  string // "" where it does not say
	Baseline   string // as a path from the working directory; "" where it does not say
	BaselineAt string // where the file says it, as FILE:LINE:COLUMN
}

// Both are far above what a file of gates needs. The parser's time and memory grow with the square of keys and of nesting: without
// the second, 65,536 open brackets took it 3 s and 6 GB.
const (
	mostFileBytes = 64 << 10
	mostNesting   = 64
)

// tooNested is where a text opens more brackets, or lists in a line, than a file of gates may have in each other. It counts those
// in quotes and comments, too. ok is false where no place is.
func tooNested(text []byte) (line, column int, ok bool) {
	brackets, lists := 0, 0
	line = 1
	atStart := true // of a line, before its first word
	for i, c := range text {
		column++
		switch c {
		case '[', '{':
			brackets++
		case ']', '}':
			brackets = max(brackets-1, 0)
		case '-', '?':
			if atStart && i+1 < len(text) && text[i+1] == ' ' {
				lists++
			}
		case '\n':
			line, column, lists, atStart = line+1, 0, 0, true
			continue
		}
		atStart = atStart && (c == ' ' || c == '-' || c == '?')
		if brackets > mostNesting || lists > mostNesting {
			return line, column, true
		}
	}
	return 0, 0, false
}

// FindFile looks for memprof.yaml from dir upward to the root of the repository, which has a .git; outside of
// a repository only in dir. It returns "" if there is none.
func FindFile(dir string) (string, error) {
	nearest := ""
	for at := dir; ; at = filepath.Dir(at) {
		path := filepath.Join(at, FileName)
		found, err := exists(path)
		if err != nil {
			return "", err
		}
		if found && nearest == "" {
			nearest = path
		}
		root, err := exists(filepath.Join(at, ".git"))
		if err != nil {
			return "", err
		}
		if root {
			return nearest, nil
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	if filepath.Dir(nearest) != filepath.Clean(dir) {
		return "", nil
	}
	return nearest, nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadFile reads a file of gates. The error lists every mistake, one a line.
func ReadFile(path string) (*File, error) {
	text, err := readBounded(path, mostFileBytes)
	if err != nil {
		return nil, err
	}
	if line, column, nested := tooNested(text); nested {
		return nil, fmt.Errorf("%s:%d:%d: more than %d brackets or lists in each other", path, line, column, mostNesting)
	}
	file := &File{path: path}
	parsed, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, yamlError(path, err)
	}
	root, err := file.document(parsed)
	if err != nil {
		return nil, err
	}
	err = file.mapping(root, "a mapping with the key gates", map[string]func(ast.Node) error{
		"gates": file.readGates,
		"aggregate": func(n ast.Node) error {
			return file.oneWord(n, &file.Aggregate, func(word string) error { _, err := ParseAggregate(word); return err })
		},
		"baseline": file.readBaseline,
		"without":  file.readWithout,
	})
	if err != nil {
		return nil, err
	}
	if len(file.Gates) == 0 && len(file.Without) == 0 {
		return nil, file.errorAt(root, "the file has no gates: list them under the key gates")
	}
	return file, nil
}

// document returns the root of the file's only document.
func (f *File) document(parsed *ast.File) (ast.Node, error) {
	var root ast.Node
	for _, doc := range parsed.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case root != nil:
			return nil, f.errorAt(doc.Body, "a second document: want one document")
		default:
			root = doc.Body
		}
	}
	if root == nil {
		return nil, fmt.Errorf("%s:1:1: want a mapping with the key gates", f.path)
	}
	return root, nil
}

func (f *File) readGates(n ast.Node) error {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return f.errorAt(n, "gates: want a list of gates, each like `- reserved.peak < 40GiB`")
	}
	var mistakes []error
	for _, item := range list.Values {
		g, err := f.readGate(item)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		f.Gates = append(f.Gates, g)
	}
	return errors.Join(mistakes...)
}

// readGate reads `- METRIC OP LIMIT`, or a mapping with the key gate and others.
func (f *File) readGate(n ast.Node) (Gate, error) {
	at, text, severity, keyed := n, "", SeverityError, Selector{}
	keys := map[string]func(ast.Node) error{
		"gate":     func(n ast.Node) error { at = n; return f.oneWord(n, &text, nil) },
		"severity": func(n ast.Node) error { return f.oneWord(n, &severity, checkSeverity) },
	}
	for _, name := range selectorKeys {
		keys[name] = func(n ast.Node) error {
			return f.oneWord(n, new(string), func(word string) error {
				if name == "rank" {
					if _, err := ParseRanks(word); err != nil {
						return err
					}
				}
				return keyed.set(name, word)
			})
		}
	}
	if _, ok := scalar(n); ok {
		text, _ = scalar(n)
	} else {
		if err := f.mapping(n, "METRIC OP LIMIT, or a mapping with the key gate", keys); err != nil {
			return Gate{}, errors.Join(err, f.alsoWrong(at, text))
		}
		if text == "" {
			return Gate{}, f.errorAt(n, "the key gate is missing: want `gate: METRIC OP LIMIT`")
		}
	}
	g, err := parse(text)
	if err != nil {
		return Gate{}, f.errorAt(at, "%w", err)
	}
	for _, name := range selectorKeys {
		if value := *keyed.key(name); value != "" && err == nil {
			err = g.Selector.set(name, value)
		}
	}
	if err == nil {
		err = g.finish()
	}
	if err != nil {
		return Gate{}, f.errorAt(n, "%w", err)
	}
	g.Severity, g.File = severity, f.path
	position := positionOf(n)
	g.Line, g.column = position.Line, position.Column
	return g, nil
}

// alsoWrong returns the mistake in the text of a gate that has mistakes in other keys, too. text is "" if it
// could not be read.
func (f *File) alsoWrong(at ast.Node, text string) error {
	if text == "" {
		return nil
	}
	if _, err := parse(text); err != nil {
		return f.errorAt(at, "%w", err)
	}
	return nil
}

// readWithout reads a name or a list of names.
func (f *File) readWithout(n ast.Node) error {
	items := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		items = list.Values
	}
	for _, item := range items {
		var name string
		if err := f.oneWord(item, &name, CheckWithout); err != nil {
			return err
		}
		f.Without = append(f.Without, name)
	}
	return nil
}

func (f *File) readBaseline(n ast.Node) error {
	if err := f.oneWord(n, &f.Baseline, nil); err != nil {
		return err
	}
	at := positionOf(n)
	f.BaselineAt = fmt.Sprintf("%s:%d:%d", f.path, at.Line, at.Column)
	if !filepath.IsAbs(f.Baseline) {
		f.Baseline = filepath.Join(filepath.Dir(f.path), f.Baseline)
	}
	return nil
}

// mapping calls the reader of each key and goes on after a mistake. Unknown keys are mistakes; a key that
// comes twice is an error of the parser.
func (f *File) mapping(n ast.Node, want string, keys map[string]func(ast.Node) error) error {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return f.errorAt(n, "want %s", want)
	}
	var mistakes []error
	for _, pair := range m.Values {
		key := pair.Key.GetToken().Value
		read, ok := keys[key]
		if !ok {
			mistakes = append(mistakes, f.errorAt(pair.Key, "unknown key %q: want %s%s", key, listed(keys), plain.DidYouMean(key, slices.Sorted(maps.Keys(keys))...)))
			continue
		}
		mistakes = append(mistakes, read(pair.Value))
	}
	return errors.Join(mistakes...)
}

// oneWord reads a scalar that is not empty and passes check, if there is one.
func (f *File) oneWord(n ast.Node, into *string, check func(string) error) error {
	text, ok := scalar(n)
	if !ok || text == "" {
		return f.errorAt(n, "want one text, not empty")
	}
	if check != nil {
		if err := check(text); err != nil {
			return f.errorAt(n, "%w", err)
		}
	}
	*into = text
	return nil
}

// scalar returns the text of a string or an integer.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func (f *File) errorAt(n ast.Node, format string, args ...any) error {
	at := positionOf(n)
	return fmt.Errorf("%s:%d:%d: %w", f.path, at.Line, at.Column, fmt.Errorf(format, args...))
}

// positionOf returns the place of a node's first character.
func positionOf(n ast.Node) *token.Position {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken().Position // its own token is the first colon
	}
	return n.GetToken().Position
}

// yamlError makes an error of the parser one line with its place.
func yamlError(path string, err error) error {
	var at interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if !errors.As(err, &at) || at.GetToken() == nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	position := at.GetToken().Position
	return fmt.Errorf("%s:%d:%d: %s", path, position.Line, position.Column, at.GetMessage())
}

// listed joins the keys in order: "baseline, gates".
func listed[V any](keys map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(keys)), ", ")
}
