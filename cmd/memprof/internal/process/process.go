// Package process runs a command in the foreground: it has memprof's terminal, process group and files.
package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

// forwarded are the signals that memprof passes on to the job, and survives itself until the job ends.
var forwarded = []os.Signal{
	unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT, unix.SIGWINCH,
}

// FindCommand looks a command up as execvp does. The error ends memprof with 127 if there is no such file, and
// with 126 if it cannot be executed.
func FindCommand(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	var refused error
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if dir == "" {
			dir = "." // an empty element of PATH
		}
		path := filepath.Join(dir, name)
		if !strings.Contains(path, "/") {
			path = "./" + path
		}
		err := executable(path)
		if err == nil {
			return path, nil
		}
		var coded *exit.Error
		if errors.As(err, &coded) && coded.Code == exit.NotRunnable && refused == nil {
			refused = err
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("%s: command not found", name)}
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("%s: command not found", path)}
	case err != nil:
		return &exit.Error{Code: exit.NotRunnable, Err: err}
	case info.IsDir():
		return &exit.Error{Code: exit.NotRunnable, Err: fmt.Errorf("%s: is a directory", path)}
	case unix.Access(path, unix.X_OK) != nil || info.Mode().Perm()&0o111 == 0: // root may access all
		return &exit.Error{Code: exit.NotRunnable, Err: fmt.Errorf("%s: permission denied (not executable)", path)}
	}
	return nil
}

// OutlivePipe keeps a closed stderr from ending memprof before its job. The job inherits the default for
// SIGPIPE, unless it was ignored.
func OutlivePipe() {
	if !signal.Ignored(unix.SIGPIPE) {
		signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	}
}

// Process is a command in the foreground.
type Process struct {
	process *os.Process
	signals chan os.Signal
	taken   func(os.Signal) bool
	ended   chan struct{}
}

// Start starts argv with the program at path. The error ends memprof with 126 or 127, unless Scarce says that
// memprof itself used up a resource. A signal to memprof is passed on to the process, unless taken, which may be nil, returns true
// for it: then it is memprof's.
func Start(path string, argv, env []string, taken func(os.Signal) bool) (*Process, error) {
	if taken == nil {
		taken = func(os.Signal) bool { return false }
	}
	signals := make(chan os.Signal, 64)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) { // what was ignored stays so, here and in the job (nohup)
			signal.Notify(signals, sig)
		}
	}
	process, err := os.StartProcess(path, argv, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		signal.Stop(signals)
		if Scarce(err) {
			return nil, err
		}
		return nil, StartError(path, err)
	}
	p := &Process{process: process, signals: signals, taken: taken, ended: make(chan struct{})}
	go p.forward()
	return p, nil
}

// StartError gives the error of starting a program the exit code 126 or 127.
func StartError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return &exit.Error{Code: exit.NotRunnable, Err: fmt.Errorf("%s: exec format error (a script needs a first line like #!/bin/sh)", path)}
	case errors.Is(err, fs.ErrNotExist): // the interpreter of its first line
		return &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("%s: its interpreter is not found", path)}
	}
	return &exit.Error{Code: exit.NotRunnable, Err: fmt.Errorf("starting the job: %w", err)}
}

func (p *Process) forward() {
	for {
		select {
		case sig := <-p.signals:
			if !p.taken(sig) && !reachedByTerminal(sig) {
				p.process.Signal(sig) // an error: it has ended, Wait will say so
			}
		case <-p.ended:
			return
		}
	}
}

// reachedByTerminal says whether a keyboard signal also reached the job: the terminal sends it to every
// process in the foreground. A second SIGINT would interrupt the job's handling of the first. A signal by kill
// looks the same, so in the foreground of a terminal all keyboard signals are taken for the terminal's.
func reachedByTerminal(sig os.Signal) bool {
	if sig != unix.SIGINT && sig != unix.SIGQUIT && sig != unix.SIGWINCH {
		return false
	}
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer terminal.Close()
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// Outcome is how a process ended.
type Outcome struct {
	Code   int            // as a shell has it: 128+n for signal n
	Signal syscall.Signal // 0 unless a signal ended it
}

func (o Outcome) String() string {
	if o.Signal != 0 {
		return fmt.Sprintf("signal %d (%s)", int(o.Signal), unix.SignalName(o.Signal))
	}
	return fmt.Sprintf("exit code %d", o.Code)
}

// Wait returns when the process has ended. Signals to memprof stay caught: the recording is still to be
// completed.
func (p *Process) Wait() (Outcome, error) {
	state, err := p.process.Wait()
	close(p.ended)
	if err != nil {
		return Outcome{}, fmt.Errorf("waiting for the job: %w", err)
	}
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return Outcome{Code: 128 + int(status.Signal()), Signal: status.Signal()}, nil
	}
	return Outcome{Code: status.ExitStatus()}, nil
}

// Scarce says whether a process could not be started for want of something that memprof itself takes:
// descriptors, memory, or room for the environment.
func Scarce(err error) bool {
	for _, errno := range []syscall.Errno{unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.ENOMEM, unix.E2BIG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// PID is the process's id.
func (p *Process) PID() int { return p.process.Pid }
