package main

import (
	"errors"
	"fmt"
	"io"
)

// Exit codes. `record` ends with the job's code instead: 128+n for signal n, 127 when
// the command is not found, 126 when it cannot be executed.
const (
	exitFine        = 0
	exitViolated    = 1 // a gate is violated, a trace does not verify, a rerun differs
	exitUsage       = 2 // wrong usage, configuration or input
	exitFailed      = 3 // memprof itself failed
	exitNotRunnable = 126
	exitNotFound    = 127
)

// exitError carries the exit code of the whole command. A nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef is an error of whoever called: flags, configuration, input.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// inputError marks err as one of the input. nil stays nil.
func inputError(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitUsage, err: err}
}

// exitWith ends the command with a code and no message of its own.
func exitWith(code int) error {
	if code == exitFine {
		return nil
	}
	return &exitError{code: code}
}

// exitCode prints err and returns the code it stands for: exitFailed unless it says otherwise.
func exitCode(stderr io.Writer, err error) int {
	if err == nil {
		return exitFine
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		complain(stderr, err)
		return exitFailed
	}
	if exit.err != nil {
		complain(stderr, err)
	}
	return exit.code
}
