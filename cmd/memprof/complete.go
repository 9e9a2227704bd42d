package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/kvcache"
	kvrequests "github.com/memprof/memprof/analysis/kvcache/requests"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// What shells are told of arguments and flags, by verb. The shell's own completion of files stands
// where nothing is said.

// completed adds what flags of check can be.
func (o *checkOptions) completed(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgsFunction = completeDirectories
	for flag, of := range map[string]cobra.CompletionFunc{
		"gate":      completeGate,
		"aggregate": words("median", "max", "min"),
		"rank":      words("worst", "all", "mean"),
		"config":    files("yaml", "yml"),
		"baseline":  files("json"),
		"without":   words(gate.AlwaysNames()...),
	} {
		mustComplete(cmd, flag, of)
	}
	return completedRecord(cmd)
}

// completedRecord adds what flags of record can be.
func completedRecord(cmd *cobra.Command) *cobra.Command {
	for flag, of := range map[string]cobra.CompletionFunc{
		"allocator":   words("bfc\tmemprof's allocator", "native\ttorch's own, watched"),
		"device":      words("auto", "real", "sim"),
		"attribution": words("modules", "phases", "none"),
		"stacks":      words("python", "none"),
	} {
		mustComplete(cmd, flag, of)
	}
	for _, flag := range []string{"output", "spool"} {
		mustComplete(cmd, flag, completeDirectories)
	}
	completePolicy(cmd, words, func(*bfc.Choice) bool { return false })
	return cmd
}

// completedReplay adds what flags of replay can be.
func completedReplay(cmd *cobra.Command) *cobra.Command {
	mustComplete(cmd, "memory", words("vmm", "separate"))
	completePolicy(cmd, words, func(c *bfc.Choice) bool { return c.NoReplay != "" })
	return cmd
}

// completedTune adds what flags of tune can be.
func completedTune(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgsFunction = completeDirectories
	for flag, of := range map[string]cobra.CompletionFunc{
		"process": completeProcesses,
		"format":  words("text", "markdown", "json"),
	} {
		mustComplete(cmd, flag, of)
	}
	completePolicy(cmd, lists, func(c *bfc.Choice) bool { return c.NoTune != "" })
	return cmd
}

// completedKV adds what flags of kv can be.
func completedKV(cmd *cobra.Command) *cobra.Command {
	for flag, of := range map[string]cobra.CompletionFunc{
		"model":     words(kvcache.ModelNames()...),
		"policy":    lists("max", "pow2", "oracle", "paged:16\tor another number of tokens", "vmm:2MiB\tor another page"),
		"sampling":  words("greedy", "parallel:4\tor another number", "beam:4\tor another number"),
		"preempt":   words("recompute", "swap"),
		"synthetic": words(kvrequests.Names()...),
		"requests":  files("csv", "jsonl"),
		"output":    completeDirectories,
		"format":    words("text", "markdown", "json"),
	} {
		mustComplete(cmd, flag, of)
	}
	return cmd
}

// lists are words of which a flag takes several, with commas between.
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

// completeGate offers metrics, each with what it is, and behind a metric the operators.
func completeGate(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const stay = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	name := strings.TrimRight(begun, " ")
	if metric, ok := gate.LookupMetric(name); ok && name != begun {
		return operators(begun, metric.Unit), stay
	}
	var offers []cobra.Completion
	offer := func(name, help string) {
		if strings.HasPrefix(name, begun) {
			offers = append(offers, cobra.CompletionWithDesc(name, help))
		}
	}
	for _, m := range gate.Metrics() {
		offer(m.Name, m.Help)
	}
	return offers, stay
}

// operators are gates to go on with behind a metric.
func operators(begun string, unit analysis.Unit) []cobra.Completion {
	example := map[analysis.Unit]string{analysis.Bytes: "40GiB", analysis.Share: "25%", analysis.Count: "0"}[unit]
	var offers []cobra.Completion
	for _, op := range []string{"<", "<=", ">", ">=", "=="} {
		offers = append(offers, cobra.CompletionWithDesc(begun+op+" ", "a limit like "+example))
	}
	return append(offers, cobra.CompletionWithDesc(begun+"< baseline + 2%", "no more than the baseline has, and so much"))
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
