package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestExplainedCommands: record takes the flags that explain advises, for all texts of the corpus.
func TestExplainedCommands(t *testing.T) {
	texts, err := filepath.Glob("../../analysis/oomtext/testdata/texts/*.txt")
	assert.NoError(t, err)
	command := regexp.MustCompile(`"command": "memprof (record [^"]*?) -o run -- python3 train.py`)
	var advised []string
	for _, text := range texts {
		for _, found := range command.FindAllStringSubmatch(memprofIn(t, 0, "explain", "--json", text), -1) {
			advised = append(advised, found[1])
		}
	}
	slices.Sort(advised)
	assert.Must(t, len(advised) > 40, "%d commands", len(advised))
	b := newBench(t)
	for i, flags := range slices.Compact(advised) {
		b.record(string(rune('a'+i)), append(strings.Fields(flags)[1:], "--", "true")...)
	}
}
