package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/verify"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace/dataset"
)

const verifyExits = `0 verified (a recovered recording: up to its end); 1 not; 2 no recording, or
  nothing in it to replay; 3 memprof failed`

type verifyOptions struct {
	JSON bool
	Of   processFlags
}

func newVerifyCommand() *cobra.Command {
	var opts verifyOptions
	cmd := &cobra.Command{
		Use:   "verify PATH...",
		Short: "Check that recordings are complete and unchanged",
		Long: `Checks that a recording is whole and unchanged (its processes, sequence numbers,
checksums, and that frees match allocations), and replays it through a second
implementation of the allocator, which must come to the same addresses, sizes
and growths. At each iteration mark and at the end of the process the recording
has what the hook counted itself: events, requests and frees with their bytes.
They must be the same, so that a recording that passes has lost no event. Where
there are no such totals, as in recordings of older versions, it says so.

Texts (modules, stacks, labels), threads, times that stay in order, sizes within
a chunk whose sum stays, and bytes of other libraries could be changed unseen by
somebody who makes the checksums right again.

A recording of --allocator native, and an imported snapshot whose history is
whole, are replayed through a model of PyTorch's own allocator. Of other imports
frees are matched, and the result says why no placement was compared. The same
goes for what --ring kept, whose placements depend on dropped events. A
recording that ends early is checked up to its end, which is printed. PATH is a
recording or a folder of recordings.`,
		Annotations: exitCodes(verifyExits),
		Example: `  memprof verify run
  memprof verify --process rank0 run
  memprof verify --json run`,
		Args: someArgs("a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON; for several recordings, a list of what it prints for one")
	opts.Of.add(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	mustComplete(cmd, "process", completeProcesses)
	return cmd
}

// verifiedRun is the result of one recording, as --json prints it.
type verifiedRun struct {
	Path      string            `json:"path,omitempty"` // of several recordings
	OK        bool              `json:"ok"`             // everything about it is right
	Processes []verified        `json:"processes"`
	Missing   []dataset.Missing `json:"missing,omitempty"`
	Readings  *verifiedReadings `json:"readings"`
}

// verified is the result of one process. That of one that is not OK is empty, and Mismatch or Unjudged says why.
type verified struct {
	Process string `json:"process"`
	OK      bool   `json:"ok"`
	verify.Result
	Mismatch *mismatch `json:"mismatch,omitempty"`
	Unjudged string    `json:"unjudged,omitempty"` // why nothing of an allocator that was observed could be compared
}

// mismatch is what is wrong, and the same in words.
type mismatch struct {
	*verify.Mismatch
	Message string `json:"message"`
}

// mismatchOf returns the mismatch that an error is; nil for any other error.
func mismatchOf(err error) *mismatch {
	if wrong, ok := errors.AsType[*verify.Mismatch](err); ok {
		return &mismatch{wrong, wrong.Error()}
	}
	return nil
}

func (o *verifyOptions) run(ctx context.Context, stdout, stderr io.Writer, paths []string) error {
	runs, err := openRuns(paths)
	if err != nil {
		return err
	}
	if runs, err = o.Of.chooseOf(runs); err != nil {
		return err
	}
	var results []verifiedRun
	for _, run := range runs {
		result, err := verifyRun(ctx, run)
		if err != nil {
			return err
		}
		if len(runs) > 1 {
			result.Path = run.Dir
		}
		results = append(results, result)
	}
	show := printVerified
	if o.JSON {
		show = printVerifiedJSON
	}
	if err := show(stdout, results); err != nil {
		return err
	}
	var wrong []string
	for i, run := range runs {
		if absent := run.Absent(); len(absent) > 0 {
			fmt.Fprintf(stderr, "memprof: warning: %s: %s\n", run.Dir, absentRanks(absent))
		}
		if !results[i].OK {
			wrong = append(wrong, run.Dir)
		}
	}
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%s does not verify", wrong[0])}
	}
	return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%d of %d recordings do not verify: %s", len(wrong), len(runs), strings.Join(wrong, ", "))}
}

func verifyRun(ctx context.Context, run *dataset.Run) (verifiedRun, error) {
	processes, err := verifyAll(ctx, run)
	if err != nil {
		return verifiedRun{}, err
	}
	readings, err := verifyReadings(ctx, run)
	wrong := func(v verified) bool { return v.Mismatch != nil }
	missing := run.Missing()
	ok := len(missing) == 0 && (readings == nil || readings.OK) && !slices.ContainsFunc(processes, wrong)
	return verifiedRun{OK: ok, Processes: processes, Missing: missing, Readings: readings}, err
}

// verifyAll verifies every process. A process without allocations, such as a launcher that only queried the
// GPU, is skipped; if nothing can be compared of any process, that is an error.
func verifyAll(ctx context.Context, run *dataset.Run) ([]verified, error) {
	var all []verified
	var nothing error
	for _, process := range run.Processes {
		result, err := verifyProcess(ctx, run, process)
		failed := verified{Process: process.Name, Result: verify.Result{EndSeq: -1}, Mismatch: mismatchOf(err)}
		switch {
		case failed.Mismatch != nil:
			all = append(all, failed)
		case errors.Is(err, verify.ErrNothingToVerify):
			nothing = cmp.Or(nothing, err)
		case errors.Is(err, verify.ErrObserved):
			failed.Unjudged = err.Error()
			nothing, all = err, append(all, failed)
		case err != nil:
			return nil, exit.Input(err)
		default:
			all = append(all, verified{Process: process.Name, OK: true, Result: *result})
		}
	}
	if !slices.ContainsFunc(all, func(v verified) bool { return v.Unjudged == "" }) {
		return nil, exit.Input(nothing)
	}
	return all, nil
}

func verifyProcess(ctx context.Context, run *dataset.Run, process *dataset.Process) (*verify.Result, error) {
	if how := run.Info.ImportOf(process.Name); how != nil {
		return verify.Imported(ctx, process, how)
	}
	return verify.Process(ctx, process)
}

// absentRanks says which ranks of the world are in no recording.
func absentRanks(absent []int) string {
	first := fmt.Sprintf("rank %d of its world is", absent[0])
	if n := len(absent); n > 1 {
		first = fmt.Sprintf("%d ranks of its world, the first of them rank %d, are", n, absent[0])
	}
	return first + " not in it: other hosts may have recorded them"
}

// printVerified prints what was found, of several recordings each below its path.
func printVerified(stdout io.Writer, results []verifiedRun) error {
	for i := range results {
		r := &results[i]
		var lines []string
		if r.Path != "" {
			lines = append(lines, r.Path)
		}
		for _, m := range r.Missing {
			lines = append(lines, "WRONG  "+m.String())
		}
		for _, v := range r.Processes {
			lines = append(lines, v.lines()...)
		}
		if r.Readings != nil {
			lines = append(lines, r.Readings.line())
		}
		for _, line := range lines {
			if err := screen.PrintLine(stdout, "%s", line); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *verified) lines() []string {
	if v.Mismatch != nil {
		return []string{"WRONG  " + v.Mismatch.Message}
	}
	if v.Unjudged != "" {
		return []string{"-      " + v.Unjudged}
	}
	r := &v.Result
	if r.Dropped > 0 {
		return ringLines(v.Process, r)
	}
	if r.Import != nil {
		return importLines(v.Process, r)
	}
	lines := []string{fmt.Sprintf("ok     %s: %s, of them %s, %s and %s in %s, came out the same",
		v.Process, plain.Counted(r.Events, "event"), plain.Counted(r.Allocs, "allocation"), plain.Counted(r.Frees, "free"), plain.Counted(r.Growths, "growth"), plain.Counted(r.Arenas, "arena"))}
	if o := r.Observed; o != nil {
		lines = append(lines, "       PyTorch's own allocator, by its model: the same addresses and segments. Taken from the trace: the addresses of",
			fmt.Sprintf("       segments, the order in a run of releases, when blocks that wait for streams are free, that the cache was emptied (%d x)", o.Emptied),
			fmt.Sprintf("       sums of PyTorch's statistics: %s equal, %s not (a reading may lie between two events)", plain.FormatCount(o.Readings), plain.FormatCount(o.Odd)))
	}
	if !r.Complete {
		lines = append(lines, "       up to "+r.EndsAt)
	}
	switch {
	case r.Counted == 0:
		lines = append(lines, "       that no event is missing is not proved: there are no totals of the hook")
	case r.Counted <= r.EndSeq && !r.Complete:
		lines = append(lines, fmt.Sprintf("       that none is missing is proved up to event %d, by the hook's last totals", r.Counted-1))
	}
	return lines
}

// importLines are the lines of an imported process.
func importLines(process string, r *verify.Result) []string {
	lines := []string{fmt.Sprintf("ok     %s: %s, of them %s and %s: whole, unchanged, and each free is of a live block",
		process, plain.Counted(r.Events, "event"), plain.Counted(r.Allocs, "allocation"), plain.Counted(r.Frees, "free"))}
	if o := r.Observed; o != nil {
		lines = append(lines, fmt.Sprintf("       imported from %s: by the model of PyTorch's allocator (%s) each block has the same address and size, in the same %s",
			r.Import.Format, r.Import.Version, plain.Counted(o.Segments, "segment")))
		if n := r.Import.Blocks; n > 0 {
			lines = append(lines, "       taken from the snapshot: where "+plain.Counted(n, "block")+" lay before its history")
		}
		return lines
	}
	return append(lines, fmt.Sprintf("       imported from %s: not compared with the model of PyTorch's allocator to its end: %s", r.Import.Format, r.Import.Why))
}

// ringLines are the lines of a process whose first events a ring dropped.
func ringLines(process string, r *verify.Result) []string {
	lines := []string{
		fmt.Sprintf("ok     %s: %s from event %d on, of them %s and %s: whole, unchanged, and each free is of a live block",
			process, plain.Counted(r.Events, "event"), r.Dropped, plain.Counted(r.Allocs, "allocation"), plain.Counted(r.Frees, "free")),
		fmt.Sprintf("       exact from event %d on: the ring dropped those before, and restated what was live and mapped then", r.Dropped),
		"       placements are not replayed: they depend on dropped events, too (how far the arenas had grown, unmapped pages, iterations)",
	}
	if !r.Complete {
		lines = append(lines, "       up to "+r.EndsAt)
	}
	return lines
}

// printVerifiedJSON prints the object of one recording, or a list of those of several.
func printVerifiedJSON(stdout io.Writer, results []verifiedRun) error {
	if len(results) == 1 {
		return screen.JSON(stdout, results[0])
	}
	return screen.JSON(stdout, results)
}

// verifiedReadings is the result for the readings of the devices' used memory.
type verifiedReadings struct {
	OK       bool      `json:"ok"`
	Events   int64     `json:"events"`
	Mismatch *mismatch `json:"mismatch,omitempty"`
}

// verifyReadings verifies the readings of a run; nil if it has none. Reports do without readings that cannot be
// opened; here that is an error, since they are a part of the recording.
func verifyReadings(ctx context.Context, run *dataset.Run) (*verifiedReadings, error) {
	if run.ReadingsErr != nil {
		return nil, exit.Input(run.ReadingsErr)
	}
	if run.Readings == nil {
		return nil, nil
	}
	events, err := verify.Readings(ctx, run.Readings)
	wrong := mismatchOf(err)
	if err != nil && wrong == nil {
		return nil, exit.Input(err)
	}
	return &verifiedReadings{wrong == nil, events, wrong}, nil
}

func (v *verifiedReadings) line() string {
	if !v.OK {
		return "WRONG  " + v.Mismatch.Message
	}
	return "ok     " + dataset.ReadingsName + ": " + plain.Counted(v.Events, "reading") + ", whole and unchanged"
}
