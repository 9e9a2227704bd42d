package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// kindsBlock is the list of kinds in the header of the hook.
var kindsBlock = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)(\nenum memprof_kind \{\n)(.*?)(\n?\};\n)`) })

// TestKindsOfTheHook holds the list of kinds in record.h to trace/kind.go. With -update it is written anew.
func TestKindsOfTheHook(t *testing.T) {
	const header = "../../hooks/capture/spool/record.h"
	text := read(t, "hooks/capture/spool/record.h")
	found := kindsBlock().FindStringSubmatch(text)
	assert.Must(t, found != nil, "%s has no enum memprof_kind", header)
	want := strings.Join(kindLines(), "\n")
	if found[2] == want {
		return
	}
	assert.Must(t, *update, "record.h is not what trace/kind.go says; write it anew with -update (-record.h +kind.go):\n%s", cmp.Diff(found[2], want))
	begin := strings.Index(text, found[0])
	text = text[:begin] + found[1] + want + "\n};\n" + text[begin+len(found[0]):]
	assert.NoError(t, os.WriteFile(header, []byte(text), 0o644))
}

// kindLines are the kinds as an enum of C, each behind a comment.
func kindLines() []string {
	var lines []string
	for _, kind := range trace.Kinds() {
		lines = append(lines, commentLines("", kind.Says)...)
		for _, column := range kind.Columns() {
			lines = append(lines, commentLines(fmt.Sprintf("  %-11s", column.Name), column.Holds)...)
		}
		lines = append(lines, fmt.Sprintf("  MEMPROF_%s = %d,", strings.ToUpper(kind.Name), kind.Kind))
	}
	return append(lines,
		"  // not an event: a piece of a string (struct memprof_string)",
		"  MEMPROF_STRING = 255,")
}

// commentLines breaks a text into comments of at most 120 columns, the first with a term before it.
func commentLines(term, text string) []string {
	const width = 120
	lines := []string{"  // " + term}
	for i, word := range strings.Fields(text) {
		if last := len(lines) - 1; i == 0 {
			lines[0] += word
		} else if len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, "  // "+strings.Repeat(" ", len(term))+word)
		}
	}
	return lines
}
