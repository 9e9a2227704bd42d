//go:build !js

package main

import (
	"fmt"
	"io"

	"github.com/fatih/color"
	"github.com/spf13/cobra"

	"github.com/memprof/memprof/cmd/memprof/internal/doctor"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
)

const doctorExits = "0 always, whatever it found; 2 wrong usage; 3 memprof failed"

func newDoctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [flags] [-- COMMAND [ARGUMENT]...]",
		Short: "Check whether this machine and a command can be recorded",
		Long: `Checks the driver, the GPUs and their virtual memory calls, NVML, limits, disk
space and environment variables, and builds the torch shim if there is none yet.
Each warning says what to do. With a command it also checks that: its Python and
torch, its options, and whether the loader can put the hook into it.`,
		Annotations: exitCodes(doctorExits),
		Example: `  memprof doctor -- python3 train.py
  memprof doctor --json | jq '.[] | select(.status != "ok")'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return exit.Usagef("doctor takes a command after -- (see `memprof doctor --help`)")
			}
			installed, err := installHook()
			findings := doctor.Examine(args, installed, err)
			if asJSON {
				return screen.JSON(cmd.OutOrStdout(), findings)
			}
			return printFindings(cmd.OutOrStdout(), findings)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(newHooksCommand())
	return cmd
}

func printFindings(w io.Writer, findings []doctor.Finding) error {
	paint := map[doctor.Health]*color.Color{
		doctor.OK: color.New(color.FgGreen), doctor.Warn: color.New(color.FgYellow), doctor.Fail: color.New(color.FgRed),
	}
	for _, c := range paint {
		if !screen.Colored(w) {
			c.DisableColor()
		} else {
			c.EnableColor()
		}
	}
	for _, f := range findings {
		label := paint[f.Health].Sprintf("%-4s", f.Health)
		if _, err := fmt.Fprintf(w, "%s  %-14s %s\n", label, f.Check, f.Detail); err != nil {
			return err
		}
		if f.Remedy != "" {
			if _, err := fmt.Fprintf(w, "%21s-> %s\n", "", f.Remedy); err != nil {
				return err
			}
		}
	}
	return nil
}
