// Package doctor examines what keeps a job from being recorded: the driver, limits, space, settings in the
// environment, and the command itself.
package doctor

import (
	"os"

	"github.com/memprof/memprof/hooks"
)

// Health is the result of one check.
type Health string

const (
	OK   Health = "ok"
	Warn Health = "warn" // recording works, but not for everything
	Fail Health = "fail" // recording does not work, or not on the GPU
)

// Finding is one line of doctor.
type Finding struct {
	Check  string `json:"check"`
	Health Health `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// Examine makes all checks, most basic first. installed is nil where the hook could not be installed, for
// the reason err. The command may be empty.
func Examine(command []string, installed *hooks.Installation, err error) []Finding {
	var findings []Finding
	python := "python3"
	if len(command) > 0 {
		look := LookAt(command)
		findings = look.conclude()
		if another, found := look.Another(); found {
			findings = append(findings, another)
		}
		if look.Python != "" {
			python = look.Python
		}
	}
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
	return append(findings, environmentOf(os.Environ())...)
}
