package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/help"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
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
		Args:          rootArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Usagef("%w%s (see `%s --help`)", flagError(err), flagMeant(cmd, err), cmd.CommandPath())
	})
	root.SetUsageFunc(usage)
	addVerbs(root)
	root.SetHelpCommandGroupID("Set up")
	root.SetCompletionCommandGroupID("Set up")
	root.AddCommand(help.Topics()...)
	completeTopics(root)
	return root
}

// renamed are verbs of earlier versions, with what does their work now.
var renamed = map[string]string{
	"tune":      "memprof fit",
	"view":      "memprof report --open",
	"recover":   "memprof report, which completes a recording, or memprof record --finish",
	"summarize": "memprof report, which writes summaries, or memprof record --finish",
	"hooks":     "memprof doctor hooks",
	"replay":    "memprof lab replay",
	"rerun":     "memprof lab rerun",
}

// rootArgs refuses a verb that there is not, and names the one that replaced it.
func rootArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && renamed[args[0]] != "" {
		return exit.Usagef("memprof %s is now %s", args[0], renamed[args[0]])
	}
	return knownVerb(cmd, args)
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
		if _, err := plain.ParseDuration(value); err != nil {
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
	return plain.DidYouMean("--"+unknown.GetSpecifiedName(), names...)
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

// usage prints how a command is called: commands in groups, and exit codes and examples at the end, where the eye is after a long list
// of flags. It is no template of cobra's: text/template finds methods by name, so the linker would keep every method of every type.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:")
	if cmd.Runnable() {
		b.WriteString("\n  " + cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n  " + cmd.CommandPath() + " COMMAND")
		for _, group := range cmd.Groups() {
			writeVerbs(&b, "\n\n"+group.Title+":", cmd, func(verb *cobra.Command) bool { return verb.GroupID == group.ID && verb.IsAvailableCommand() })
		}
		if len(cmd.Groups()) == 0 {
			writeVerbs(&b, "\n\nCommands:", cmd, (*cobra.Command).IsAvailableCommand)
		}
	}
	if cmd.HasAvailableLocalFlags() {
		b.WriteString("\n\nFlags:\n" + usagesOf(cmd.LocalFlags()))
	}
	if codes := cmd.Annotations["exit"]; codes != "" {
		b.WriteString("\n\nExit codes:\n  " + codes)
	}
	if cmd.HasExample() {
		b.WriteString("\n\nExamples:\n" + cmd.Example)
	}
	if cmd.HasHelpSubCommands() {
		writeVerbs(&b, "\n\nHelp topics, printed by "+cmd.CommandPath()+" help TOPIC:", cmd, (*cobra.Command).IsAdditionalHelpTopicCommand)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

// usagesOf is a line for each flag, in 80 columns. An empty list is no default to show.
func usagesOf(flags *pflag.FlagSet) string {
	return strings.TrimRight(emptyDefault.ReplaceAllString(flags.FlagUsagesWrapped(80), ""), " \n")
}

var emptyDefault = regexp.MustCompile(`\s+\(default\s+\[\]\)`)

// writeVerbs writes a title and a line for each verb of cmd that is listed under it.
func writeVerbs(b *strings.Builder, title string, cmd *cobra.Command, listed func(*cobra.Command) bool) {
	b.WriteString(title)
	for _, verb := range cmd.Commands() {
		if listed(verb) {
			fmt.Fprintf(b, "\n  %-*s %s", verb.NamePadding(), verb.Name(), verb.Short)
		}
	}
}
