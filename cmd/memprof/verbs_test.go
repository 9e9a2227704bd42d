package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Verbs and flags are kept few: one that comes in replaces another.
const (
	mostVerbs = 16 // besides completion and help
	mostFlags = 140
)

// TestFewVerbsAndFlags counts the verbs, and the flags of all verbs and of those below them; --help is not counted, nor hidden ones (those of record that check
// passes on to it), nor a flag again that a
// verb has from the one above it.
func TestFewVerbsAndFlags(t *testing.T) {
	root := newRootCommand()
	verbs, flags := 0, 0
	var count func(cmd *cobra.Command)
	count = func(cmd *cobra.Command) {
		own := 0
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && f.Name != "version" && !f.Hidden {
				own++
			}
		})
		t.Logf("%-28s %d", cmd.CommandPath(), own)
		flags += own
		for _, below := range cmd.Commands() {
			count(below)
		}
	}
	for _, verb := range root.Commands() {
		if verb.Name() == "completion" || verb.Name() == "help" || !verb.IsAvailableCommand() {
			continue
		}
		verbs++
		count(verb)
	}
	assert.That(t, verbs <= mostVerbs && flags <= mostFlags, "%d verbs with %d flags, want at most %d and %d", verbs, flags, mostVerbs, mostFlags)
	t.Logf("%d verbs, %d flags", verbs, flags)
}

// TestOldVerbs: a verb of an earlier version is refused with what does its work now, and what that names exists.
func TestOldVerbs(t *testing.T) {
	for old, now := range renamed {
		text := memprofIn(t, 2, old, "run")
		assert.That(t, strings.Contains(text, "memprof "+old+" is now "+now), "%s: %s", old, text)
		words := strings.Fields(strings.ReplaceAll(now, ",", ""))
		found, _, err := newRootCommand().Find(words[1:2])
		assert.That(t, err == nil && found.Name() == words[1], "%s: there is no %s", old, now)
	}
}
