package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/spell"
)

// version is set by the linker (make build).
var version = "devel"

// exitCodes makes text the "Exit codes:" of a command's help.
func exitCodes(text string) map[string]string { return map[string]string{"exit": text} }

// usageTemplate is cobra's own with commands in groups, and exit codes and examples at the end, where the
// eye is after a long list of flags.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{if .Groups}}{{$all := .Commands}}{{range $group := .Groups}}

{{$group.Title}}:{{range $all}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{else}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}{{end}}{{with index .Annotations "exit"}}

Exit codes:
  {{.}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasHelpSubCommands}}

Help topics, printed by {{.CommandPath}} help TOPIC:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}
`

// knownVerb refuses arguments of a command that has verbs below it.
func knownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, verb := range cmd.Commands() {
		names = append(names, verb.Name())
	}
	return exit.Usagef("unknown command %q%s (see `%s --help`)", args[0], spell.DidYouMean(args[0], names...), cmd.CommandPath())
}

// exactArgs is cobra.ExactArgs with exit code 2 and the names of the arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		what := "no arguments"
		if len(names) > 0 {
			what = strings.Join(names, " and ")
		}
		return exit.Usagef("%s takes %s, got %d (see `%s --help`)", cmd.Name(), what, len(args), cmd.CommandPath())
	}
}

// someArgs demands at least one argument.
func someArgs(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return exit.Usagef("%s needs %s (see `%s --help`)", cmd.Name(), name, cmd.CommandPath())
	}
}
