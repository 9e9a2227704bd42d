package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestHelpWidth demands that every help fits into 80 columns. That of a verb ends with exit codes and
// examples; that of a topic has a first line for the list of topics. Cobra's own texts are left out.
func TestHelpWidth(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			walk(below)
		}
		name := cmd.CommandPath()
		if strings.HasPrefix(name, "memprof completion") || strings.HasPrefix(name, "memprof help") || strings.HasPrefix(name, "memprof json ") {
			return
		}
		var text bytes.Buffer
		cmd.SetOut(&text)
		cmd.InitDefaultHelpFlag()
		err := cmd.Help()
		assert.Must(t, err == nil, "%s: %v", name, err)
		for line := range strings.Lines(text.String()) {
			n := utf8.RuneCountInString(strings.TrimRight(line, "\n"))
			assert.That(t, n <= 80, "%s --help: %d columns: %s", name, n, line)
		}
		assert.That(t, !strings.Contains(text.String(), "(default [])"), "%s --help: a list that is empty by default has no default to show", name)
		if cmd.IsAdditionalHelpTopicCommand() {
			_, behind, has := strings.Cut(text.String(), "\nSee also: ")
			assert.That(t, !has || !strings.Contains(behind, "\n\n"), "%s: what is behind \"See also\" is easily overlooked", name)
			assert.That(t, cmd.Short != "" && !strings.HasSuffix(cmd.Short, ".") && strings.TrimSpace(text.String()) != "",
				"%s: want a first line without a full stop, an empty line and a text", name)
			return
		}
		assert.That(t, cmd.Annotations["exit"] != "" || !cmd.HasParent(), "%s --help has no exit codes", name)
		assert.That(t, cmd.Example != "", "%s --help has no examples", name)
	}
	walk(newRootCommand())
}
