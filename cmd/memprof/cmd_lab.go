package main

import "github.com/spf13/cobra"

func newLabCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Repeat recorded requests, or run hand-written ones",
		Long: `Experiments with the allocator: rerun repeats the requests of a recording on
this machine; replay runs hand-written requests through the allocator's model.`,
		Annotations: exitCodes(rerunExits),
		Example: `  memprof record -o again --device sim -- memprof lab rerun run
  memprof lab replay --ops requests.ops --limit 80GiB`,
		Args: knownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRerunCommand(), newReplayCommand())
	return cmd
}
