package main

import (
	"fmt"
	"io"
	"os"

	"github.com/fatih/color"
	"github.com/spf13/cobra"
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
		Use:   "doctor",
		Short: "Show what of this machine memprof can use, and what to do about the rest",
		Long: `Looks at the driver, its devices and their virtual memory calls, the management library,
what is needed to build the torch shim, space for traces and settings that matter.`,
		Annotations: exitCodes(doctorExits),
		Example: `  memprof doctor
  memprof doctor --json | jq '.[] | select(.status != "ok")'`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := examine()
			if asJSON {
				return printJSON(cmd.OutOrStdout(), findings)
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
		if !colourful(w) {
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

// examine makes all checks, most basic first.
func examine() []finding {
	installed, err := installHook()
	findings := []finding{checkHook(installed, err)}
	findings = append(findings, checkDriver()...)
	if installed != nil {
		findings = append(findings, checkSimulator(installed))
	}
	findings = append(findings, checkNVML(), checkCompiler(), checkTorch())
	if installed != nil {
		findings = append(findings, checkShimCache(installed))
	}
	return append(findings,
		checkSpace("shared memory", "/dev/shm", 1<<30), checkSpace("disk", ".", 10<<30),
		checkOpenFiles(), checkMapCount(), checkPreload(os.Getenv("LD_PRELOAD")), checkTorchConf(os.Environ()),
	)
}
