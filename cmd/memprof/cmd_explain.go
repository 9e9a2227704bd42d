package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/analysis/oomtext"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/layout"
)

const explainExits = `0 an error, or a start, was found; 2 wrong usage, no such file, or
  neither in it; 3 memprof failed`

func newExplainCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [FILE]",
		Short: "Say why memory ran out, from the error's text alone",
		Long: `Reads a log, or standard input, and finds the out-of-memory error in it: of
PyTorch 1.0 to 2.14, vLLM, SGLang, JAX, TensorFlow with the dump of its BFC
allocator, NCCL, CUDA, or the host. In at most 15 lines it says whose bytes fill
the device, which cause the error's own figures show, and what follows from it.
It needs no recording and no GPU. Of several errors it takes the first of those
whose text says most. A log without one, of a vLLM or SGLang that starts,
becomes a table of one GPU: weights, activations, KV cache, graphs, the rest.

  capacity           what is live fills the device
  fragmentation      what is reserved and not allocated would have held it
  other_process      other processes hold what is missing
  outside_framework  this process's memory outside the framework does
  limit              a fraction or utilization setting binds
  bug_size           no device has that much
  not_gpu            host memory, or another vendor's device
  unknown            the text does not tell`,
		Annotations: exitCodes(explainExits),
		Example: `  memprof explain train.log
  python3 train.py 2>&1 | memprof explain --json`,
		Args: atMostOne("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := "-"
			if len(args) > 0 {
				name = args[0]
			}
			return explain(cmd.OutOrStdout(), cmd.InOrStdin(), name, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// explain reads the log of a name, or stdin for "-".
func explain(stdout io.Writer, stdin io.Reader, name string, asJSON bool) error {
	what := "standard input"
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return exit.Input(err)
		}
		defer file.Close()
		stdin, what = file, name
	}
	found, start, err := oomtext.Read(stdin)
	if err != nil {
		return exit.Usagef("%s: %w", what, err)
	}
	if found == nil && start != nil {
		if asJSON {
			return report.StartupJSON(stdout, start)
		}
		return layout.WriteText(stdout, screen.Options(stdout), report.StartupSection(start))
	}
	if found == nil {
		return exit.Usagef("%s: no out-of-memory error in it: give the log with the line of the error", what)
	}
	if asJSON {
		return report.ExplainJSON(stdout, found)
	}
	return report.ExplainText(stdout, found)
}
