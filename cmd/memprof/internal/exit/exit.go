// Package exit holds memprof's exit codes, and the errors that carry them.
package exit

import (
	"errors"
	"fmt"
)

// Exit codes. `record` ends with the job's code instead: 128+n for signal n, NotFound when the command
// is not found, NotRunnable when it cannot be executed.
const (
	Fine        = 0
	Violated    = 1 // a gate is violated, a trace does not verify, a rerun differs
	Usage       = 2 // wrong usage, configuration or input
	Failed      = 3 // memprof itself failed
	NotRunnable = 126
	NotFound    = 127
)

// Error ends memprof with a code. A nil Err prints nothing.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Usagef returns an error of the caller: wrong flags, configuration or input.
func Usagef(format string, args ...any) error {
	return &Error{Usage, fmt.Errorf(format, args...)}
}

// Input makes err one of the input. nil stays nil.
func Input(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Usage, err}
}

// With ends memprof with a code and no message.
func With(code int) error {
	if code == Fine {
		return nil
	}
	return &Error{Code: code}
}

// Code returns the exit code that err stands for, and whether err has a message to print. An error
// without a code is memprof's own failure.
func Code(err error) (code int, message bool) {
	if err == nil {
		return Fine, false
	}
	var coded *Error
	if !errors.As(err, &coded) {
		return Failed, true
	}
	return coded.Code, coded.Err != nil
}
