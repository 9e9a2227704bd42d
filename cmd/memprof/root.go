package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/spell"
)

// run is the whole command but for the process around it.
func run(stdout, stderr io.Writer, args []string) int {
	root := newRootCommand()
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(growthWithValue(args))
	return screen.End(stderr, root.ExecuteContext(context.Background()))
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "memprof",
		Short: "Say where every byte of GPU memory went while a job ran",
		Long: `memprof records the GPU memory of a job, from the first allocation to the last:
what tensors asked for, what the allocator padded, held in reserve or left in
holes, and what other libraries took. It reports, verifies and checks such
recordings.`,
		Example: `  memprof record -o run -- python3 train.py
  memprof report run`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Usagef("%w%s (see `%s --help`)", err, flagMeant(cmd, err), cmd.CommandPath())
	})
	root.SetUsageTemplate(usageTemplate)
	root.AddCommand(
		newRecordCommand(), newImportCommand(), newReportCommand(), newVerifyCommand(), newCheckCommand(), newDiffCommand(), newExportCommand(), newTopCommand(), newRecoverCommand(),
		newReplayCommand(), newKVCommand(), newRerunCommand(), newTuneCommand(), newDoctorCommand(), newHooksCommand(),
	)
	root.AddCommand(newTopics()...)
	completeTopics(root)
	return root
}

// flagMeant suggests flags where err is of one that does not exist.
func flagMeant(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, "--"+flag.Name) })
	return spell.DidYouMean("--"+unknown.GetSpecifiedName(), names...)
}

// completeTopics has the verbs that cobra makes refuse what they do not know, as the others do.
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
				topic.InitDefaultHelpFlag() // is in what is printed
				return topic.Help()
			}
		}
	}
}
