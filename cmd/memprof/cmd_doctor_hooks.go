//go:build !js

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/hooks"
)

const hooksExits = "0 done; 2 no compiler, torch or place to write; 3 memprof failed"

// installHook writes the hook's files where processes can load them. If the directory that the user named
// cannot be used, the error is one of usage; if none of the usual ones can, it is Unrecordable.
func installHook() (*hooks.Installation, error) {
	installed, err := hooks.InstallAnywhere()
	switch {
	case err == nil:
		return installed, nil
	case errors.Is(err, hooks.ErrNotBuilt), os.Getenv("MEMPROF_CACHE") != "":
		return nil, exit.Usagef("the hook cannot be installed: %w (set MEMPROF_CACHE to a directory that you can write)", err)
	}
	return nil, recorder.Unrecordable{Err: fmt.Errorf("the hook cannot be installed: %w (set MEMPROF_CACHE to a directory that you can write)", err)}
}

func newHooksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hooks",
		Short: "Print where the capture hook is, or compile the torch shim",
		Long: `The memprof binary contains the capture hook, the simulated driver, the source
of the torch shim and the Python package. They are written to a cache directory
when they are needed.`,
		Annotations: exitCodes(hooksExits),
		Example: `  memprof doctor hooks path
  memprof doctor hooks build /opt/venv/bin/python3`,
		Args: knownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newHooksPathCommand(), newHooksBuildCommand())
	return cmd
}

func newHooksPathCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "path",
		Short: "Install the hook if needed, and print its directory",
		Long: `Prints the directory with libmemprof.so, capture/memprof.h (functions for other
programs), sim/, torch/ and the Python package.`,
		Annotations: exitCodes(hooksExits),
		Example: `  memprof doctor hooks path
  LD_LIBRARY_PATH=$(memprof doctor hooks path)/sim ./my-cuda-program`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			installed, err := installHook()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), installed.Dir)
			return err
		},
	}
}

type hooksBuildOptions struct {
	Output string
}

func newHooksBuildCommand() *cobra.Command {
	var opts hooksBuildOptions
	cmd := &cobra.Command{
		Use:   "build [PYTHON]",
		Short: "Compile the torch shim for an installed torch",
		Long: `Compiles the torch shim for the torch of a Python, by default python3, and
prints the file's path. memprof record does this at first use; build it here
for machines without a compiler, and give it to them with record --shim. In an
image's Dockerfile, set MEMPROF_CACHE to a folder of the image first: all its
users then have the shim.
Without a shim, PyTorch's plug-in allocator is recorded: allocations, streams
and pools, but no memory history and no tensors of other processes.`,
		Annotations: exitCodes(hooksExits),
		Example: `  memprof doctor hooks build
  memprof doctor hooks build /opt/venv/bin/python3 -o shim.so`,
		Args: atMostOne("PYTHON"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), append(args, "python3")[0])
		},
	}
	opts.addFlags(cmd.Flags())
	return cmd
}

func (o *hooksBuildOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.Output, "output", "o", "", "copy the shim to this `file`")
}

func (o *hooksBuildOptions) run(stdout, stderr io.Writer, python string) error {
	installed, err := installHook()
	if err != nil {
		return err
	}
	shim, err := installed.BuildShim(python, stderr)
	if err != nil {
		return exit.Input(err)
	}
	if o.Output != "" {
		data, err := os.ReadFile(shim)
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.Output, data, 0o755); err != nil {
			return exit.Usagef("%w", err)
		}
		shim = o.Output
	}
	_, err = fmt.Fprintln(stdout, shim)
	return err
}
