package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelpWidth demands of every help that it fits into 80 columns, and ends with exit codes
// and examples. What cobra says of completion is its own.
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
		if err := cmd.Help(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("%s --help: %d columns: %s", name, n, line)
			}
		}
		if cmd.Annotations["exit"] == "" && cmd.HasParent() && cmd.Name() != "json" {
			t.Errorf("%s --help has no exit codes", name)
		}
		if cmd.Example == "" && cmd.Name() != "json" {
			t.Errorf("%s --help has no examples", name)
		}
	}
	walk(newRootCommand())
}
