package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTopic = regexp.MustCompile("memprof help ([a-z-]+)")
	// A command ends where the job's own begins, or at a quote, a comment or the end of the line.
	namedCommand = regexp.MustCompile("(?m)memprof ([a-z]+)([^\n`#]*?)(?: -- |`|#|$)")
	namedFlag    = regexp.MustCompile(" --([a-z-]+)")
)

// TestDocumentedCommands demands that the topics, verbs and flags exist that the README, the samples' and the help topics name.
func TestDocumentedCommands(t *testing.T) {
	files, err := filepath.Glob("help/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../../README.md", "../../samples/README.md") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		root := newRootCommand()
		for _, found := range namedTopic.FindAllStringSubmatch(string(data), -1) {
			if topic, rest, err := root.Find(found[1:]); err != nil || topic == root || len(rest) > 0 {
				t.Errorf("%s: %s: no such topic", file, found[0])
			}
		}
		for _, found := range namedCommand.FindAllStringSubmatch(string(data), -1) {
			verb, rest, err := root.Find(found[1:2])
			if err != nil || verb == root || verb.Name() == "help" || len(rest) > 0 {
				continue // prose: what memprof does
			}
			verb.InitDefaultHelpFlag()
			for _, flag := range namedFlag.FindAllStringSubmatch(found[2], -1) {
				if verb.Flags().Lookup(flag[1]) == nil {
					t.Errorf("%s: memprof %s has no flag --%s", file, verb.Name(), flag[1])
				}
			}
		}
	}
}

// TestReadmeIsShort: a stranger reads the README to the end.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > 120 {
		t.Errorf("the README has %d lines, at most 120 are allowed: move text to a help topic", lines)
	}
}
