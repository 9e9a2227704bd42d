package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/help"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/spell"
	"github.com/memprof/memprof/report/units"
)

// run is the whole command line without the process around it.
func run(stdout, stderr io.Writer, args []string) int {
	root := newRootCommand()
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(growthWithValue(args))
	return screen.End(stderr, root.ExecuteContext(context.Background()))
}

func init() { cobra.EnableCommandSorting = false } // help lists verbs in the order of addGroup

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "memprof",
		Short: "Record where the GPU memory of a job goes",
		Long: `memprof records every GPU memory allocation of a job and reports where the bytes
went: requested by tensors, lost inside chunks, free, or taken by other
libraries. It finds the allocator settings with the lowest peak and fails CI
when memory grows. The job's code does not change.`,
		Example: `  memprof record -o run -- python3 train.py
  memprof report run`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Usagef("%w%s (see `%s --help`)", flagError(err), flagMeant(cmd, err), cmd.CommandPath())
	})
	root.SetUsageTemplate(usageTemplate)
	addGroup(root, "Record", newRecordCommand(), newTopCommand(), newSnapshotCommand(), newRecoverCommand(), newImportCommand())
	addGroup(root, "Read", newReportCommand(), newVerifyCommand(), newDiffCommand(), newCheckCommand(), newExportCommand())
	addGroup(root, "Try other settings", newTuneCommand(), newFitCommand(), newRerunCommand(), newReplayCommand(), newKVCommand())
	addGroup(root, "Set up", newDoctorCommand(), newHooksCommand())
	root.SetHelpCommandGroupID("Set up")
	root.SetCompletionCommandGroupID("Set up")
	root.AddCommand(help.Topics()...)
	completeTopics(root)
	return root
}

// addGroup adds verbs that the help lists under a title.
func addGroup(root *cobra.Command, title string, verbs ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, verb := range verbs {
		verb.GroupID = title
		root.AddCommand(verb)
	}
}

// flagError returns err; about a flag's value it names the flag once, the value once, and what is wanted.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag, value := invalid.GetFlag(), invalid.GetValue()
	if flag.Value.Type() == "duration" {
		if _, err := units.ParseDuration(value); err != nil {
			return fmt.Errorf("--%s: %w", flag.Name, err)
		}
	}
	var number *strconv.NumError
	switch {
	case !errors.As(err, &number):
		cause := strings.TrimPrefix(invalid.Unwrap().Error(), flag.Name+": ")
		if strings.Contains(cause, strconv.Quote(value)) {
			return fmt.Errorf("--%s: %s", flag.Name, cause)
		}
		return fmt.Errorf("--%s %q: %s", flag.Name, value, cause)
	case errors.Is(number, strconv.ErrRange):
		return fmt.Errorf("--%s %q: the number is out of range", flag.Name, value)
	case flag.Value.Type() == "bool":
		return fmt.Errorf("--%s %q: want true or false", flag.Name, value)
	case strings.HasPrefix(flag.Value.Type(), "float"):
		return fmt.Errorf("--%s %q: want a number", flag.Name, value)
	}
	return fmt.Errorf("--%s %q: want a whole number", flag.Name, value)
}

// flagMeant suggests the nearest flag if err is about one that does not exist.
func flagMeant(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, "--"+flag.Name) })
	return spell.DidYouMean("--"+unknown.GetSpecifiedName(), names...)
}

// completeTopics makes cobra's own verbs, help and completion, refuse unknown arguments as the others do.
func completeTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, verb := range root.Commands() {
		switch verb.Name() {
		case "completion":
			verb.Args, verb.RunE = knownVerb, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			verb.Run, verb.RunE = nil, func(_ *cobra.Command, args []string) error {
				topic, rest, err := root.Find(args)
				if err != nil {
					return exit.Usagef("%w", err)
				}
				if err := knownVerb(topic, rest); err != nil {
					return err
				}
				topic.InitDefaultHelpFlag() // cobra lists --help in the text only after this
				return topic.Help()
			}
		}
	}
}

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
