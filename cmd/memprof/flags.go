package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/dataset"
)

// formatFlags are the flags of verbs that print text, Markdown or JSON.
type formatFlags struct {
	Format   string // "text", "markdown" or "json" after validate
	JSON     bool
	Markdown bool
}

func (f *formatFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.JSON, "json", false, "print JSON")
	flags.BoolVar(&f.Markdown, "markdown", false, "print Markdown")
}

// validate sets Format. An error is one of wrong usage.
func (f *formatFlags) validate() error {
	f.Format = "text"
	switch {
	case f.JSON && f.Markdown:
		return exit.Usagef("--json and --markdown: choose one")
	case f.JSON:
		f.Format = "json"
	case f.Markdown:
		f.Format = "markdown"
	}
	return nil
}

// printAs prints a result in a format of formatFlags: its sections, or by the function for JSON.
func printAs[T any](stdout io.Writer, format string, result T, sections func(T) []layout.Section, json func(io.Writer, T) error) error {
	switch format {
	case "json":
		return json(stdout, result)
	case "markdown":
		return layout.WriteMarkdown(stdout, sections(result)...)
	}
	return layout.WriteText(stdout, screen.Options(stdout), sections(result)...)
}

// processFlags choose processes of recordings by name; all if none is given.
type processFlags struct {
	Processes []string
}

func (f *processFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.Processes, "process", nil, "only the process of this `name`, as in the report (rank0, pid4711); may be given several times")
}

// given says whether some processes are chosen.
func (f *processFlags) given() bool { return len(f.Processes) > 0 }

// wants says whether a process is chosen.
func (f *processFlags) wants(p *dataset.Process) bool {
	return !f.given() || slices.Contains(f.Processes, p.Name)
}

// check fails if a name is that of no process, and lists what there is.
func (f *processFlags) check(processes []*dataset.Process) error {
	var names []string
	for _, p := range processes {
		names = append(names, plain.Text(p.Name))
	}
	for _, name := range f.Processes {
		if !slices.Contains(names, plain.Text(name)) {
			return exit.Usagef("--process %q: no such process: want %s%s", name, listed(names), plain.DidYouMean(name, names...))
		}
	}
	return nil
}

// listed names what there is to choose from: all, or of many the first, and the last.
func listed(names []string) string {
	const most = 12
	if len(names) <= most {
		return plain.Alternatives(names)
	}
	return fmt.Sprintf("%s, …, %s (%d in all)", strings.Join(names[:most-1], ", "), names[len(names)-1], len(names))
}

// choose leaves the chosen processes in analyzed recordings, and the recordings that have one. A name that
// none of them has is an error.
func (f *processFlags) choose(recordings []recording.Recording) ([]recording.Recording, error) {
	if !f.given() {
		return recordings, nil
	}
	var all []*dataset.Process
	for i := range recordings {
		all = append(all, recordings[i].Run.Processes...)
	}
	if err := f.check(all); err != nil {
		return nil, err
	}
	var chosen []recording.Recording
	for _, r := range recordings {
		if r.Choose(f.wants); len(r.Results) > 0 {
			chosen = append(chosen, r)
		}
	}
	return chosen, nil
}

// chooseOf does what choose does for recordings that are only opened.
func (f *processFlags) chooseOf(runs []*dataset.Run) ([]*dataset.Run, error) {
	if !f.given() {
		return runs, nil
	}
	var all []*dataset.Process
	for _, run := range runs {
		all = append(all, run.Processes...)
	}
	if err := f.check(all); err != nil {
		return nil, err
	}
	var chosen []*dataset.Run
	for _, run := range runs {
		if run.Choose(f.wants); len(run.Processes) > 0 {
			chosen = append(chosen, run)
		}
	}
	return chosen, nil
}

// oneOf fails if the value of a flag is none of the choices: "--flag \"valeu\": want value or other, did you
// mean value?".
func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return exit.Usagef("--%s %q: want %s%s", flag, value, plain.Alternatives(choices), plain.DidYouMean(value, choices...))
}

// sizeFlag is a number of bytes, given as people write sizes: 40GiB.
type sizeFlag int64

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return plain.FormatSize(int64(*s))
}

func (s *sizeFlag) Set(text string) error {
	bytes, err := plain.ParseSize(text)
	*s = sizeFlag(bytes)
	return err
}

// Type is the word that stands for the value in the help.
func (s *sizeFlag) Type() string { return "size" }

// exitCodes makes text the "Exit codes:" of a command's help.
func exitCodes(text string) map[string]string { return map[string]string{"exit": text} }

// knownVerb refuses arguments of a command that has verbs below it.
func knownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, verb := range cmd.Commands() {
		names = append(names, verb.Name())
	}
	return exit.Usagef("unknown command %q%s (see `%s --help`)", args[0], plain.DidYouMean(args[0], names...), cmd.CommandPath())
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

// atMostOne demands no argument or one.
func atMostOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= 1 {
			return nil
		}
		return exit.Usagef("%s takes one %s, got %d (see `%s --help`)", cmd.Name(), name, len(args), cmd.CommandPath())
	}
}

// completeFlags registers completions by the name of their flag. Where nothing is registered, the shell
// completes files.
func completeFlags(cmd *cobra.Command, of map[string]cobra.CompletionFunc) {
	for flag, complete := range of {
		mustComplete(cmd, flag, complete)
	}
}

// lists completes a flag that takes several words, separated by commas.
func lists(choices ...cobra.Completion) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		var offers []cobra.Completion
		for _, choice := range choices {
			if offer := before + choice; strings.HasPrefix(offer, begun) {
				offers = append(offers, offer)
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// mustComplete registers a completion, if a shell asks this process for one: cobra keeps what is registered, and with
// it the whole tree of commands, for as long as the process lives. A flag that does not exist is a mistake of ours.
func mustComplete(cmd *cobra.Command, flag string, of cobra.CompletionFunc) {
	if cmd.Flag(flag) == nil {
		panic(fmt.Sprintf("%s has no --%s to complete", cmd.Name(), flag))
	}
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], cobra.ShellCompRequestCmd) {
		return
	}
	if err := cmd.RegisterFlagCompletionFunc(flag, of); err != nil {
		panic(err)
	}
}

func words(choices ...cobra.Completion) cobra.CompletionFunc {
	return cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
}

func files(extensions ...cobra.Completion) cobra.CompletionFunc {
	return cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt)
}

// completeDirectories has the shell offer directories: a recording is one.
func completeDirectories(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeProcesses offers the processes of the recording that is named.
func completeProcesses(_ *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	run, err := dataset.Open(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := slices.DeleteFunc(strings.Split(processNames(run), ", "), func(name string) bool { return !strings.HasPrefix(name, begun) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

// openFlag is --open, or --open=PORT.
type openFlag struct {
	port  int
	given bool
}

func (f *openFlag) Set(text string) error {
	port, err := strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return errors.New("want a port, 0 to 65535")
	}
	f.port, f.given = port, true
	return nil
}

func (f *openFlag) String() string { return "" }

func (*openFlag) Type() string { return "port" }
