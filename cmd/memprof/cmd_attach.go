//go:build !js

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
)

const attachExits = `0 done; 2 wrong usage, or no such process, or one that cannot be reached;
  3 memprof failed`

// attachWithin is how long a process may take to answer. At the first start it compiles the torch shim.
const attachWithin = 5 * time.Minute

func newAttachCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach PID [start DIR | stop | snapshot DIR]",
		Short: "Start or stop recording a process that runs already",
		Long: `Has a running process record its own GPU memory, from now on, into a directory,
or end that, or writes a snapshot of it. Without a word behind PID it prints
whether the process is recorded. PyTorch keeps its own allocator, and what is
live by then is in the recording.

The process needs the Python package in it: it has imported memprof, or was
started with MEMPROF_WATCH, and has used CUDA. It listens on a socket that only
its user may use.`,
		Annotations: exitCodes(attachExits),
		Example: `  memprof attach 4711 start run
  memprof attach 4711 snapshot now && memprof report now
  memprof attach 4711 stop`,
		Args: attachArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return attach(cmd.OutOrStdout(), args[0], args[1:])
		},
	}
	return cmd
}

func attachArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exit.Usagef("attach takes the number of a process (see `memprof attach --help`)")
	}
	want := map[string]int{"start": 3, "stop": 2, "snapshot": 3}
	if len(args) == 1 || want[args[1]] == len(args) {
		return nil
	}
	if want[args[1]] == 0 {
		return exit.Usagef("attach %s %q: want start DIR, stop or snapshot DIR%s", args[0], args[1], plain.DidYouMean(args[1], "start", "stop", "snapshot"))
	}
	return exit.Usagef("attach %s %s: want start DIR, stop or snapshot DIR", args[0], args[1])
}

// attachRequest and attachAnswer are what hooks/python/memprof/_control.py reads and writes.
type attachRequest struct {
	Do        string `json:"do"`
	Directory string `json:"directory,omitempty"`
}

type attachAnswer struct {
	Directory *string `json:"directory"`
	Error     string  `json:"error"`
}

func attach(stdout io.Writer, process string, words []string) error {
	pid, err := strconv.Atoi(process)
	if err != nil || pid <= 0 {
		return exit.Usagef("attach %q: want the number of a process", process)
	}
	request := attachRequest{Do: "state"}
	if len(words) > 0 && words[0] != "snapshot" {
		request.Do = words[0]
	}
	if request.Do == "start" {
		if request.Directory, err = filepath.Abs(words[1]); err != nil {
			return exit.Usagef("%w", err)
		}
	}
	answer, err := askProcess(pid, request)
	if err != nil {
		return err
	}
	if len(words) > 0 && words[0] == "snapshot" {
		return attachSnapshot(stdout, pid, answer.Directory, words[1])
	}
	next := fmt.Sprintf("memprof attach %d start DIR", pid)
	switch {
	case answer.Directory == nil && request.Do == "start":
		return screen.PrintLine(stdout, "memprof record records process %d already", pid)
	case answer.Directory == nil:
		return screen.PrintLine(stdout, "process %d is not recorded; next: %s", pid, next)
	case request.Do == "stop":
		return screen.PrintLine(stdout, "process %d is not recorded any more; next: memprof report %s", pid, plain.ShellQuote(*answer.Directory))
	}
	return screen.PrintLine(stdout, "process %d is recorded into %s; next: memprof top %s, memprof attach %d stop",
		pid, plain.Text(*answer.Directory), plain.ShellQuote(*answer.Directory), pid)
}

func attachSnapshot(stdout io.Writer, pid int, from *string, to string) error {
	if from == nil {
		return exit.Usagef("process %d is not recorded: memprof attach %d start DIR does so", pid, pid)
	}
	_, run, err := recorder.WriteSnapshot(*from, to, "memprof attach", false)
	if err != nil {
		return exit.Input(err)
	}
	for _, p := range run.Processes {
		if err := screen.PrintLine(stdout, "%s: %s", p.Name, plain.Counted(p.Events, "event")); err != nil {
			return err
		}
	}
	return screen.PrintLine(stdout, "next: memprof report %s", plain.ShellQuote(to))
}

// askProcess sends a request over the socket of a process, and reads its answer.
func askProcess(pid int, request attachRequest) (*attachAnswer, error) {
	socket, user, err := controlSocket(pid)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return nil, exit.Usagef("process %d has no memprof in it that listens (%w). A process listens once it has imported memprof and used CUDA. "+
			"Start it with MEMPROF_WATCH=DIR where memprof is installed by pip, or under memprof record", pid, err)
	}
	defer conn.Close()
	if err := checkPeer(conn.(*net.UnixConn), user); err != nil {
		return nil, err
	}
	line, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(attachWithin)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	const longest = 1 << 16
	text, err := bufio.NewReader(io.LimitReader(conn, longest)).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("process %d gave no answer: %w", pid, err)
	}
	answer := new(attachAnswer)
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("process %d gave no answer of memprof's: %w", pid, err)
	}
	if answer.Error != "" {
		return nil, exit.Usagef("process %d: %s", pid, answer.Error)
	}
	return answer, nil
}

// checkPeer refuses a socket that another user listens on: anybody may put one into /tmp before the process does.
func checkPeer(conn *net.UnixConn, user uint32) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if peer.Uid != user {
		return exit.Usagef("user %d listens on %s, which is user %d's: the answer would not be the process's", peer.Uid, conn.RemoteAddr(), user)
	}
	return nil
}

// controlSocket is where a process of this user listens, also one in a container, and the user.
func controlSocket(pid int) (socket string, user uint32, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, exit.Usagef("there is no process %d", pid)
	}
	if err != nil {
		return "", 0, exit.Input(err)
	}
	user = stat.Sys().(*syscall.Stat_t).Uid
	if me := uint32(os.Geteuid()); user != me && me != 0 {
		return "", 0, exit.Usagef("process %d is another user's", pid)
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return "", 0, exit.Input(err)
	}
	number := strconv.Itoa(pid)
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok && len(strings.Fields(numbers)) > 0 {
			fields := strings.Fields(numbers) // the last is the number that the process itself knows
			number = fields[len(fields)-1]
		}
	}
	return filepath.Join(dir, "root/tmp", fmt.Sprintf("memprof-%d", user), "attach", number+".sock"), user, nil
}
