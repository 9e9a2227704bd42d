package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/report/units"
	"github.com/memprof/memprof/trace"
)

type rerunOptions struct {
	Process    string
	Iterations int64
	Log        string
	JSON       bool
}

func newRerunCommand() *cobra.Command {
	var opts rerunOptions
	cmd := &cobra.Command{
		Use:   "rerun TRACE",
		Short: "Make a recording's requests again on this machine",
		Long: `Makes the allocations, frees and marks of one recorded process again, in order
and as fast as they are answered. Under memprof record they go through its
allocator, so that a trace can be recorded anew with other options or on the
simulated device; otherwise through cudaMalloc. The library is $MEMPROF_CUDART,
or libcudart where the loader finds it.

The new recording has what the old one knew: modules, call stacks, labels,
phases, iterations, pools, captures, pauses, key-value caches, and the memory
of other libraries by their names. A request that failed is made again, and
freed at once if it succeeds. The overhead of the driver is measured anew.`,
		Annotations: exitCodes(rerunExits),
		Example: `  memprof record -o again --device sim -- memprof rerun run
  memprof record -o tight --limit 4GiB --growth needed -- memprof rerun run`,
		Args: exactArgs("a trace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	mustComplete(cmd, "process", completeProcesses)
	return cmd
}

func (o *rerunOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Process, "process", "", "`name` of the process in the trace, as report shows it (default: the first)")
	flags.Int64Var(&o.Iterations, "iterations", 0, "stop after `n` iterations (default: all)")
	flags.StringVar(&o.Log, "log", "", "write a line, address and size, to this `file` after each allocation that succeeded")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

func (o *rerunOptions) run(stdout, stderr io.Writer, path string) error {
	if o.Iterations < 0 {
		return exit.Usagef("--iterations %d: want a positive number", o.Iterations)
	}
	if os.Getenv("MEMPROF_ALLOCATOR") == "native" {
		return errNativeRerun
	}
	run, err := openRun(path)
	if err != nil {
		return err
	}
	process, err := pickProcess(run, o.Process)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // CUDA contexts belong to threads
	defer runtime.UnlockOSThread()
	requester, err := rerun.Open()
	if err != nil {
		return exit.Usagef("%w (on a machine without one: memprof record --device sim -- memprof rerun %s)", err, path)
	}
	again := newRequests(requester, process, stderr, o.Iterations)
	if o.Log != "" {
		if again.log, err = os.OpenFile(o.Log, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return exit.Usagef("--log: %w", err)
		}
		defer again.log.Close()
	}
	if err := again.all(process); err != nil {
		return err
	}
	err = again.conclude(stdout, o.JSON)
	if requester.Hooked() {
		requester.Exit(screen.End(stderr, err))
	}
	return err
}

// errNativeRerun is of a rerun below record --allocator native, which sets MEMPROF_ALLOCATOR. The hook would
// serve its requests all the same, and the recording say that another allocator did.
var errNativeRerun = exit.Usagef("rerun has no allocator of its own that --allocator native could observe: record it with --allocator bfc")

// isRerun says whether a command is a rerun of this program, or of one of its name.
func isRerun(command []string) bool {
	if filepath.Base(command[0]) != "memprof" {
		return false
	}
	verb := slices.IndexFunc(command[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	return verb >= 0 && command[1+verb] == "rerun"
}

// block is a live allocation as the recording knows it.
type block struct {
	arena int32
	addr  int64
}

// requests makes the requests of a recording again.
type requests struct {
	requester  *rerun.Requester
	devices    int32 // that there are
	texts      texts
	log        *os.File
	stderr     io.Writer
	iterations int64 // to make; 0 is all

	live        map[block]uintptr // by the recording's address: where it lies here
	chunks      map[block]chunk   // likewise, of pools
	restore     restoring
	checkpoints map[devicePool][]map[block]rerun.Restored
	arenas      map[int32]*recordedArena // by arena
	foreign     map[int64]*rerun.Foreign
	captures    map[captured]*rerun.Capture
	memories    map[graphMemory]rerun.GraphMemory
	shaped      map[devicePool]bool // has a range of a graph memory
	paused      map[string]bool     // tags
	caches      map[int64]rerun.KVCache

	lastArena int32 // that an event named, and that arena
	last      *recordedArena

	allocs, frees, refused, marks, labels, taken, failures int64
}

func newRequests(requester *rerun.Requester, process *trace.Process, stderr io.Writer, iterations int64) *requests {
	return &requests{
		requester: requester, devices: int32(requester.Devices()), stderr: stderr, iterations: iterations,
		texts: texts{requester: requester, of: func(context int32) string { return process.Strings().Text(context) }, numbers: map[int32]rerun.Context{}, nodes: map[int64]uint32{}},
		live:  map[block]uintptr{}, chunks: map[block]chunk{}, checkpoints: map[devicePool][]map[block]rerun.Restored{}, arenas: map[int32]*recordedArena{}, foreign: map[int64]*rerun.Foreign{},
		captures: map[captured]*rerun.Capture{}, memories: map[graphMemory]rerun.GraphMemory{}, shaped: map[devicePool]bool{},
		paused: map[string]bool{}, caches: map[int64]rerun.KVCache{},
	}
}

// all makes the requests of a process. The events of its iterations beyond the wanted
// ones are left out.
func (r *requests) all(process *trace.Process) error {
	reader, err := process.NewReader()
	if err != nil {
		return exit.Input(err)
	}
	defer reader.Close()
	defer r.finishRestore()
	for {
		batch, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return exit.Input(err)
		}
		for i := range batch.Len() {
			event := batch.Event(i)
			if err := r.one(&event); err != nil {
				return err
			}
			if r.iterations > 0 && r.marks == r.iterations {
				return nil
			}
		}
	}
}

func (r *requests) one(event *trace.Event) error {
	if event.Device < trace.NoDevice || event.Device >= r.devices {
		return exit.Usagef("event %d: %s on device %d, and this machine has %s", event.Seq, event.Kind, event.Device, units.Counted(int64(r.devices), "device"))
	}
	if event.Kind == trace.KindRestore {
		r.restored(event)
		return nil
	}
	r.finishRestore()
	switch event.Kind {
	case trace.KindAlloc:
		return r.alloc(event)
	case trace.KindFree:
		return r.free(event)
	case trace.KindOOM:
		return r.oom(event)
	}
	return r.mark(event, r.texts.of(event.Context))
}

func (r *requests) malloc(event *trace.Event) (uintptr, *recordedArena, error) {
	p := r.arena(event)
	arena, err := r.arenaOf(p)
	if err != nil {
		return 0, p, err
	}
	address, err := r.requester.Malloc(arena, event.Requested, r.texts.context(event.Context))
	return address, p, err
}

// alloc keeps going when a request is refused: what the rest of the job would have done
// is what there is to learn.
func (r *requests) alloc(event *trace.Event) error {
	if r.arena(event).segments {
		return nil
	}
	address, p, err := r.malloc(event)
	if err != nil {
		r.refuse(event, err)
		return nil
	}
	r.allocs++
	key := block{event.Arena, event.Addr}
	r.live[key] = address
	if p.pool != (rerun.Pool{}) {
		r.chunks[key] = chunk{
			rerun.Restored{Arena: p.arena, Address: address, Provided: r.requester.Provided(address), Requested: event.Requested},
			devicePool{p.device, p.pool},
		}
	}
	if r.log == nil {
		return nil
	}
	// One write: a line is whole or not there when the process is killed.
	if _, err := fmt.Fprintf(r.log, "%d %d\n", address, event.Requested); err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	return nil
}

func (r *requests) refuse(event *trace.Event, err error) {
	if r.refused == 0 {
		screen.Complain(r.stderr, fmt.Sprintf("event %d: %d bytes, which the recording got, were refused: %v", event.Seq, event.Requested, err))
	}
	r.refused++
}

// oom makes a request that the recording did not get. Its answer decides which blocks outlive
// the phases that it cuts off.
func (r *requests) oom(event *trace.Event) error {
	if event.Requested <= 0 || r.arena(event).segments {
		return nil
	}
	address, p, err := r.malloc(event)
	if err != nil {
		return nil
	}
	return r.requester.Free(p.arena, address)
}

func (r *requests) free(event *trace.Event) error {
	key := block{event.Arena, event.Addr}
	address, ok := r.live[key]
	if !ok {
		return nil // its allocation was refused
	}
	delete(r.live, key)
	delete(r.chunks, key)
	r.frees++
	arena, err := r.arenaOf(r.arena(event))
	if err == nil {
		err = r.requester.Free(arena, address)
	}
	if err != nil {
		return fmt.Errorf("event %d: free: %w", event.Seq, err)
	}
	return nil
}

func (r *requests) conclude(stdout io.Writer, asJSON bool) error {
	if err := r.print(stdout, asJSON); err != nil {
		return err
	}
	if r.refused > 0 {
		return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%d of %d allocations were refused", r.refused, r.refused+r.allocs+r.taken)}
	}
	if r.failures > 0 {
		return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%s of the recording failed", units.Counted(r.failures, "call"))}
	}
	return nil
}

// madeAgain is what --json prints.
type madeAgain struct {
	Through    string `json:"through"`
	Allocs     int64  `json:"allocs"`
	Frees      int64  `json:"frees"`
	Refused    int64  `json:"refused"`
	Iterations int64  `json:"iterations"`
	Labels     int64  `json:"labels"`
	Others     int64  `json:"other_libraries"` // allocations of other libraries
	Failed     int64  `json:"failed"`          // calls beside requests
}

func (r *requests) print(stdout io.Writer, asJSON bool) error {
	if asJSON {
		return screen.JSON(stdout, madeAgain{r.requester.Through(), r.allocs, r.frees, r.refused, r.marks, r.labels, r.taken, r.failures})
	}
	_, err := fmt.Fprintf(stdout, "made again through %s: %s, %s, %s\n", r.requester.Through(), units.Counted(r.allocs, "allocation"), units.Counted(r.frees, "free"), units.Counted(r.marks, "iteration"))
	return err
}
