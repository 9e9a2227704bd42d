package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/trace"
)

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
	run, err := trace.Open(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := slices.DeleteFunc(strings.Split(processNames(run), ", "), func(name string) bool { return !strings.HasPrefix(name, begun) })
	return names, cobra.ShellCompDirectiveNoFileComp
}
