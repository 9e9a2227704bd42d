package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/spell"
)

// version is set by the linker (make build).
var version = "devel"

// What the exit codes of each verb mean, for the end of its help.
const (
	recordExits = `the job's own code; 128+n when signal n ended it; 126 not executable;
  127 not found; 2 memprof refused before the job was started`
	reportExits = "0 reported; 2 no such trace, or a damaged one; 3 memprof failed"
	verifyExits = `0 verified (of a recovered trace: up to its end); 1 not; 2 no trace, or
  nothing to replay; 3 memprof failed`
	checkExits = `0 all gates hold; 1 one is violated; 2 a gate or trace that cannot be judged;
  3 memprof failed; with --run, the code of a job that failed`
	diffExits = `0 compared, whatever changed; 2 wrong usage, no such trace, or nothing to
  compare; 3 memprof failed`
	exportExits = "0 written; 2 wrong usage, no such trace, or a damaged one; 3 memprof failed"
	topExits    = `0 the recording ended, or Ctrl-C; 2 wrong usage or no recording there;
  3 memprof failed`
	recoverExits = "0 recovered, or nothing was left to do; 2 no recording there; 3 memprof failed"
	rerunExits   = `0 all requests were answered; 1 some were refused that the recording got,
  or calls failed that it made; 2 no trace, no CUDA, or not its devices;
  3 memprof failed`
	importExits = `0 imported; 2 wrong usage, no such file, or one that is damaged, hostile or
  empty; 3 memprof failed`
	tuneExits = `0 replayed, whatever it recommends; 2 wrong usage, no such trace, or nothing
  to replay; 3 memprof failed`
	doctorExits = "0 always, whatever it found; 2 wrong usage; 3 memprof failed"
	hooksExits  = "0 done; 2 no compiler, torch or place to write; 3 memprof failed"
)

// exitCodes makes text the "Exit codes:" of a command's help.
func exitCodes(text string) map[string]string { return map[string]string{"exit": text} }

// usageTemplate is cobra's own with the exit codes and examples at the end, where the eye
// is after a long list of flags.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

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

// exactArgs is cobra.ExactArgs with an exit code and the name of what is missing.
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

// someArgs wants at least one argument.
func someArgs(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return exit.Usagef("%s needs %s (see `%s --help`)", cmd.Name(), name, cmd.CommandPath())
	}
}
