package doctor

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/cmd/memprof/internal/process"
)

// A job is recorded if the loader puts the hook into its process, and its tensors if its Python runs
// sitecustomize from PYTHONPATH. This file looks for what prevents either, in the command line and in the first
// bytes of its programs. Commands inside shell scripts are not examined.

// Look is what was found out about a command and those it wraps.
type Look struct {
	Findings []Finding
	chain    []string // names of the programs; each starts the next
	Python   string   // the Python that is started last, or ""
	scripts  string   // the folder that it imports from first
	Foreign  bool     // the program has a loader that fails with the hook
	Launcher bool     // the program cannot be recorded, but may start programs that can
}

// LookAt follows a command and those it wraps.
func LookAt(command []string) *Look {
	look := &Look{}
	look.command(command, 0)
	return look
}

func (c *Look) add(h Health, detail, remedy string) {
	c.Findings = append(c.Findings, Finding{Check: "command", Health: h, Detail: detail, Remedy: remedy})
}

// conclude returns the findings, or one that is OK if nothing prevents recording.
func (c *Look) conclude() []Finding {
	if len(c.Findings) == 0 {
		detail := strings.Join(c.chain, " → ") + ": nothing prevents recording it"
		if name := c.chain[len(c.chain)-1]; slices.Contains(shells, name) {
			detail += "; commands that " + name + " starts were not examined"
		}
		c.add(OK, detail, "")
	}
	return c.Findings
}

const mostWrappers = 8 // nested; the kernel stops at fewer scripts

// Programs that start another one from their own arguments.
var (
	wrappers   = []string{"nohup", "nice", "ionice", "time", "timeout", "stdbuf", "setsid", "taskset", "numactl", "chrt", "strace", "catchsegv"}
	elsewhere  = []string{"docker", "podman", "nerdctl", "kubectl", "ssh", "apptainer", "singularity", "enroot", "chroot"}
	privileged = []string{"sudo", "doas", "su", "runuser", "pkexec"}
	shells     = []string{"sh", "bash", "dash", "zsh", "fish", "ksh", "csh", "tcsh", "busybox"}
	pythons    = regexp.MustCompile(`^(python|pypy)[0-9.]*$`)
)

func (c *Look) command(argv []string, depth int) {
	if depth > mostWrappers || len(argv) == 0 {
		return
	}
	path, err := process.FindCommand(argv[0])
	if err != nil {
		c.add(Fail, err.Error(), "check the name, and PATH")
		return
	}
	name := filepath.Base(argv[0])
	c.chain = append(c.chain, name)
	if pythons.MatchString(name) { // or a script in front of it, as pyenv has: the options are handed on
		c.Python, c.scripts = argv[0], scriptsFolder(argv[1:])
		c.interpreter(name, argv[1:])
	}
	switch {
	case slices.Contains(elsewhere, name):
		c.add(Fail, name+" starts the job where the hook is not installed", "run memprof record there: "+name+" … memprof record -- COMMAND")
		return
	case slices.Contains(privileged, name):
		c.add(Fail, name+" removes LD_PRELOAD from the job's environment", "put "+name+" first: "+name+" memprof record -- COMMAND")
		return
	}
	if !c.program(path, argv, depth) {
		return
	}
	switch {
	case name == "env":
		c.env(argv[1:], depth)
	case slices.Contains(wrappers, name):
		for i := 1; i < len(argv); i++ {
			if strings.HasPrefix(argv[i], "-") {
				continue
			}
			if _, err := process.FindCommand(argv[i]); err == nil {
				c.command(argv[i:], depth+1)
				return
			}
		}
	}
}

// program examines the file. It returns false if there is nothing more to examine: a script was followed to its
// interpreter, or the program cannot be recorded.
func (c *Look) program(path string, argv []string, depth int) bool {
	file, err := os.Open(path)
	if err != nil { // it may be executable and not readable
		return true
	}
	defer file.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(file, head)
	head = head[:n]
	if line, ok := bytes.CutPrefix(head, []byte("#!")); ok {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		c.script(string(line), path, argv, depth)
		return false
	}
	if loadsNothing(file) {
		c.add(Fail, path+" has more rights than its user, so the loader ignores LD_PRELOAD", "run memprof record as the user that owns those rights")
		return false
	}
	return c.binary(path, file)
}

// script follows a #! line, which the kernel splits at the first blank only.
func (c *Look) script(line, path string, argv []string, depth int) {
	interpreter, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
	next := []string{interpreter}
	if argument = strings.TrimSpace(argument); argument != "" {
		next = append(next, argument)
	}
	c.command(append(append(next, path), argv[1:]...), depth+1)
}

// loadsNothing says whether the kernel starts the program in secure mode, without LD_PRELOAD.
func loadsNothing(file *os.File) bool {
	if os.Geteuid() == 0 {
		return false
	}
	info, err := file.Stat()
	if err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return true
	}
	size, err := unix.Fgetxattr(int(file.Fd()), "security.capability", nil)
	return err == nil && size > 0
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func (c *Look) binary(path string, file *os.File) bool {
	program, err := elf.NewFile(file)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			c.add(Fail, path+": neither a program nor a script with a first line like #!/bin/sh", "")
			return false
		}
		return true
	}
	if program.Class != elf.ELFCLASS64 || program.Machine != machines[runtime.GOARCH] {
		c.add(Fail, fmt.Sprintf("%s is a program for %s, %s, and the hook is not", path, program.Machine, program.Class), "the program is not recorded; use a 64-bit build for this machine")
		return false
	}
	loader := ""
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			text, _ := io.ReadAll(io.LimitReader(segment.Open(), 4096))
			loader = string(bytes.TrimRight(text, "\x00"))
		}
	}
	switch {
	case loader == "":
		c.Launcher = true // uv, for one, which starts a Python
		c.add(Warn, path+" is statically linked: no loader can put the hook into it", "only programs that it starts are recorded; link it dynamically")
		return false
	case strings.Contains(filepath.Base(loader), "musl"):
		c.Foreign = true
		c.add(Fail, path+" uses musl's loader, and the hook needs glibc's", "the program is not recorded; use a build for glibc")
		return false
	}
	return true
}

// env follows env(1), which can remove variables that record sets.
func (c *Look) env(arguments []string, depth int) {
	for i := 0; i < len(arguments); i++ {
		word := arguments[i]
		name, _, assigned := strings.Cut(word, "=")
		switch {
		case word == "-i" || word == "-" || word == "--ignore-environment":
			c.add(Fail, "env "+word+" empties the environment, and with it LD_PRELOAD and PYTHONPATH", "put memprof record after it: env "+word+" … memprof record -- COMMAND")
		case word == "-u" && i+1 < len(arguments):
			i++
			c.lost("env -u "+arguments[i]+" removes", arguments[i])
		case strings.HasPrefix(word, "--unset="):
			c.lost("env "+word+" removes", strings.TrimPrefix(word, "--unset="))
		case word == "-S" && i+1 < len(arguments):
			arguments = append(strings.Fields(arguments[i+1]), arguments[i+2:]...)
			i = -1
		case strings.HasPrefix(word, "-S"):
			arguments = append(strings.Fields(word[2:]), arguments[i+1:]...)
			i = -1
		case assigned && !strings.Contains(name, "/"):
			c.lost("env "+name+"=… replaces", name)
		case strings.HasPrefix(word, "-"): // options without a value
		default:
			c.command(arguments[i:], depth+1)
			return
		}
	}
}

// lost adds a finding if a variable that does not reach the program is one that record sets.
func (c *Look) lost(what, name string) {
	switch name {
	case "LD_PRELOAD":
		c.add(Fail, what+" the variable that loads the hook", "set it before memprof record, which adds to it")
	case "PYTHONPATH":
		c.add(Warn, what+" the variable that loads the torch shim: tensors are not recorded", "set it before memprof record, which adds to it")
	}
}

// interpreter looks for options that keep Python from running sitecustomize.
func (c *Look) interpreter(name string, arguments []string) {
	for i := 0; i < len(arguments); i++ {
		word := arguments[i]
		if len(word) < 2 || word[0] != '-' || strings.HasPrefix(word, "--") {
			return // the script, standard input, or an option that takes no part in this
		}
	letters:
		for at, letter := range word[1:] {
			switch letter {
			case 'I', 'E':
				c.add(Warn, fmt.Sprintf("%s -%c ignores PYTHONPATH, which loads the torch shim: tensors are not recorded, only CUDA calls of libraries", name, letter), "remove -"+string(letter))
			case 'S':
				c.add(Warn, name+" -S skips site, which loads the torch shim: tensors are not recorded, only CUDA calls of libraries", "remove -S")
			case 'c', 'm':
				return // the rest is the program's
			case 'W', 'X':
				if at == len(word)-2 {
					i++ // its value is a word of its own
				}
				break letters
			}
		}
	}
}
