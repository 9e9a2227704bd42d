package main

import (
	"fmt"
	"io"
	"os"

	"github.com/fatih/color"
	"github.com/spf13/cobra"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
)

// health is the verdict of one check.
type health string

const (
	healthOK   health = "ok"
	healthWarn health = "warn" // recording works, less well
	healthFail health = "fail" // recording does not work, or not on the GPU
)

// finding is one line of doctor.
type finding struct {
	Check  string `json:"check"`
	Health health `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

func newDoctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [flags] [-- COMMAND [ARGUMENT]...]",
		Short: "Show what will not be recorded here, and what to do about it",
		Long: `Looks at the driver, its devices and their virtual memory calls, the management
library, limits, space, and settings that matter, and builds the torch shim
unless that was done. With a command it also looks at that: its Python and
torch, its options, and whether the loader can put the hook into it.`,
		Annotations: exitCodes(doctorExits),
		Example: `  memprof doctor -- python3 train.py
  memprof doctor --json | jq '.[] | select(.status != "ok")'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return exit.Usagef("doctor takes a command after -- (see `memprof doctor --help`)")
			}
			findings := examine(args)
			if asJSON {
				return screen.JSON(cmd.OutOrStdout(), findings)
			}
			return printFindings(cmd.OutOrStdout(), findings)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printFindings(w io.Writer, findings []finding) error {
	paint := map[health]*color.Color{
		healthOK: color.New(color.FgGreen), healthWarn: color.New(color.FgYellow), healthFail: color.New(color.FgRed),
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

// examine makes all checks, most basic first. The command may be empty.
func examine(command []string) []finding {
	var findings []finding
	python := "python3"
	if len(command) > 0 {
		look := commandLook{}
		look.command(command, 0)
		findings = look.conclude()
		if look.python != "" {
			python = look.python
		}
	}
	installed, err := installHook()
	findings = append(findings, checkHook(installed, err))
	findings = append(findings, checkDriver()...)
	if installed != nil {
		findings = append(findings, checkSimulator(installed))
	}
	findings = append(findings, checkNVML()...)
	findings = append(findings, checkCompiler())
	findings = append(findings, checkTorch(python, installed)...)
	findings = append(findings,
		checkSpace("shared memory", "/dev/shm", 1<<30), checkSpace("disk", ".", 10<<30), checkLimits(), checkMapCount())
	return append(findings, examineEnvironment(os.Environ())...)
}
