// Package recorder records a job: it chooses the place and the device, runs the job with the hook in it, takes
// over its events, and completes the recording.
package recorder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/process"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks"
	"github.com/memprof/memprof/hooks/nvml"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
)

const (
	pollEvery = 50 * time.Millisecond // how often events are taken over from the job
	lingers   = 2 * time.Second       // how long processes of the job may outlive it before they are cut off
)

// Recorder records one run of a job.
type Recorder struct {
	Place   *Place
	Device  *Device
	Stderr  io.Writer
	Quiet   bool
	Version string   // of memprof
	Missed  []string // what will not be recorded, known beforehand
	Set     []hooks.FrameworkSetting
	DryRun  bool
	// Readable opens the cards whose used memory is read: [Readable], or a test's
	Readable func(*Device) (found nvml.Cards, readings string)

	OnSignal os.Signal // writes a snapshot, and is not passed on to the job; nil for none
	Ring     int64     // how many bytes of each process's last events are kept; 0 keeps all

	info      *dataset.Info
	collector *collect.Collector
	snapshots *snapshots
	sampler   *nvml.Sampler // nil where the devices' used memory cannot be read
	troubles  []string      // of the collector, each once
	troubling sync.Mutex    // guards troubles
}

// Run records the job. After the job was started its exit code is the result, even if the recording fails.
// environment is called when it is known whether the job's processes have to read the devices' used memory
// themselves.
func (r *Recorder) Run(program string, command []string, settings map[string]string, environment func(base []string, readings bool) []string) error {
	if err := r.prepare(command, settings); err != nil {
		r.Place.Abandon()
		return Unrecordable{err}
	}
	r.snapshots.start()
	if r.Device.Why != "" {
		r.say("no GPU here (%s): the job runs on the simulated device", r.Device.Why)
	}
	started := time.Now()
	job, err := process.Start(program, command, environment(os.Environ(), strings.HasPrefix(settings[dataset.OptionReadings], dataset.ReadingsOfDriver)), r.taken)
	if err != nil {
		if r.sampler != nil {
			r.sampler.Abandon()
		}
		r.snapshots.stop()
		r.collector.Finish() // of nothing
		r.Place.Abandon()
		if process.Scarce(err) {
			return Unrecordable{fmt.Errorf("starting the job under the recorder: %w", err)}
		}
		return err
	}
	if r.sampler != nil {
		r.sampler.Follow(job.PID())
	}
	stop := r.follow()
	ended, err := job.Wait()
	stop()
	r.poll() // a job may end right after a request failed
	r.snapshots.stop()
	if err != nil {
		return err
	}
	r.info.DurationNS = time.Since(started).Nanoseconds()
	r.info.ExitStatus = &ended.Code
	r.conclude(ended)
	return exit.With(ended.Code)
}

// prepare writes run.json, so that an interrupted recording can be recovered, and opens the collector and the
// sampler.
func (r *Recorder) prepare(command []string, settings map[string]string) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	host, _ := os.Hostname() // its name is a convenience
	r.info = &dataset.Info{
		ID: dataset.NewRunID(), Version: r.Version, Command: command, Host: host, OS: osName(), Kernel: kernelName(),
		GPUs: r.Device.GPUs, Frameworks: []string{}, Options: settings, Start: time.Now(), ClockBase: now.Nano(),
	}
	if r.DryRun {
		r.info.Source = dataset.DryRun
	}
	if r.Device.Simulated {
		settings["device"] = "sim"
	} else {
		settings["device"] = "real"
	}
	found, readings := r.Readable(r.Device)
	settings[dataset.OptionReadings] = readings
	for _, s := range r.Set {
		r.info.Environment = append(r.info.Environment, dataset.Variable{Name: s.Name, Value: s.Value, Why: s.Why})
	}
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		settings[dataset.OptionVisible] = visible
	}
	if err := dataset.WriteInfo(r.Place.Dir, r.info); err != nil {
		return err
	}
	options := collect.Options{RunID: r.info.ID, ClockBase: r.info.ClockBase, Ring: r.Ring}
	r.snapshots = &snapshots{dir: r.Place.Dir, say: r.say, fail: r.trouble}
	if r.Ring > 0 {
		options.Failed = r.snapshots.requestFailed
	}
	collector, err := collect.New(r.Place.Dir, options)
	if err != nil {
		return err
	}
	r.collector, r.snapshots.hold = collector, collector.Hold
	if found == nil {
		return nil
	}
	if r.sampler, err = nvml.NewSampler(r.Place.Dir, r.info, found, nvml.AnswersWithin); err != nil {
		settings[dataset.OptionReadings] = dataset.ReadingsOfDriver + err.Error() // run.json is written again at the end
	}
	return nil
}

// follow collects events while the job runs, until the returned function is called.
func (r *Recorder) follow() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	live := screen.NewLiveLine(r.Stderr, r.Quiet)
	go func() {
		defer close(ended)
		defer live.Clear()
		ticker := time.NewTicker(pollEvery)
		defer ticker.Stop()
		for {
			select {
			case <-end:
				return
			case <-ticker.C:
				r.poll()
				live.Draw(r.collector.Totals())
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

func (r *Recorder) poll() {
	if _, err := r.collector.Poll(); err != nil {
		r.trouble(err)
	}
}

// taken takes the signal that asks for a snapshot.
func (r *Recorder) taken(signal os.Signal) bool {
	if signal != r.OnSignal {
		return false
	}
	r.snapshots.ask(unix.SignalName(signal.(unix.Signal)))
	return true
}

func (r *Recorder) trouble(err error) {
	r.troubling.Lock()
	defer r.troubling.Unlock()
	if text := err.Error(); !slices.Contains(r.troubles, text) {
		r.troubles = append(r.troubles, text)
	}
}

// convert waits a little for processes that outlive the job, and completes the parts. whole says that nothing
// is left in the spool.
func (r *Recorder) convert() (summary *collect.Summary, whole bool) {
	for deadline := time.Now().Add(lingers); time.Now().Before(deadline); time.Sleep(pollEvery) {
		if alive, err := r.collector.Alive(); !alive || err != nil {
			break
		}
		r.poll()
	}
	summary, err := r.collector.Convert()
	if err != nil {
		r.troubles = nil // Convert made the last attempt at everything
		r.trouble(err)
	}
	return summary, err == nil
}

// conclude completes the recording in an order that survives a kill at any point: first the parts, then
// run.json, then it removes the spool. Until the last step `memprof record --finish` can complete the recording.
func (r *Recorder) conclude(ended process.Outcome) {
	summary, whole := r.convert()
	if ended.Code != 0 {
		r.say("the job ended with %s", ended)
	}
	r.saySettings(summary.Libraries)
	problems, assumed := splitAssumptions(summary.Problems)
	r.info.Assumptions = assumed
	r.info.Problems = slices.Concat(r.Missed, problems, r.troubles)
	if r.sampler != nil { // as late as its processes are waited for
		r.info.Problems = append(r.info.Problems, r.sampler.Stop()...)
	}
	run, err := dataset.Open(r.Place.Dir)
	if err == nil {
		r.info.Frameworks = frameworks(run)
		for _, process := range run.Processes {
			r.info.Processes = append(r.info.Processes, process.Name)
		}
	}
	if err := dataset.WriteInfo(r.Place.Dir, r.info); err != nil {
		r.trouble(err)
		r.info.Problems = append(r.info.Problems, err.Error())
	}
	if whole {
		if err := r.collector.Remove(); err != nil {
			r.info.Problems = append(r.info.Problems, err.Error())
		}
	}
	if err == nil && whole {
		r.summarize()
	}
	for _, problem := range r.info.Problems[len(r.Missed):] { // those were printed before
		screen.Remark(r.Stderr, "problem", problem)
	}
	for _, assumption := range assumed {
		r.say("%s", assumption)
	}
	r.report(run, err, summary)
}

// splitAssumptions takes out of the hook's problems what a dry run has assumed.
func splitAssumptions(all []string) (problems, assumed []string) {
	for _, text := range all {
		if _, assumption, ok := strings.Cut(text, ": "+dataset.DryRun+": "); ok {
			assumed = append(assumed, dataset.DryRun+": "+assumption)
		} else {
			problems = append(problems, text)
		}
	}
	return problems, assumed
}

// summarize writes the summary tables of the recording. The recording is whole without them.
func (r *Recorder) summarize() {
	run, err := dataset.Open(r.Place.Dir)
	if err == nil {
		_, err = summary.WriteAll(r.Place.Shown, run)
	}
	if err != nil {
		screen.Remark(r.Stderr, "warning", fmt.Sprintf("the summary could not be written: %v", err))
	}
}

// saySettings prints the variables that were set for a library, if the job has loaded the library.
func (r *Recorder) saySettings(loaded []string) {
	for _, s := range r.Set {
		if slices.Contains(loaded, s.Library) {
			r.say("the job loaded %s: memprof set %s=%s, because %s", s.Library, s.Name, s.Value, s.Why)
		}
	}
}

// report prints what was recorded, and the next command.
func (r *Recorder) report(run *dataset.Run, openErr error, summary *collect.Summary) {
	next := "memprof report " + plain.ShellQuote(r.Place.Shown)
	switch {
	case errors.Is(openErr, trace.ErrUnfinished):
		screen.Complain(r.Stderr, fmt.Sprintf("the recording in %s is not complete; next: memprof record --finish %s", r.Place.Shown, plain.ShellQuote(r.Place.Shown)))
		return
	case errors.Is(openErr, trace.ErrEmpty):
		r.say("no event was recorded: the job never used a GPU through CUDA (`memprof doctor` shows what is there)")
		return
	case openErr != nil:
		screen.Complain(r.Stderr, fmt.Sprintf("the recording cannot be read: %v", openErr))
		return
	}
	bytes := int64(0)
	for _, process := range run.Processes {
		bytes += process.Bytes()
	}
	totals := r.collector.Totals()
	r.say("%s of %s in %s (%s), on %s", plain.Counted(summary.Events, "event"), plain.Counted(int64(len(summary.Processes)), "process"), r.Place.Shown, plain.FormatSize(bytes), r.Device)
	if totals.PeakReserved == 0 && totals.Requested == 0 && totals.OOMs == 0 {
		r.say("the job made no allocation through memprof (`memprof doctor` shows what may be missing)")
	} else {
		r.say("reserved at most %s", plain.FormatSize(totals.PeakReserved))
	}
	if totals.OOMs > 0 {
		r.say("%s failed", plain.Counted(totals.OOMs, "request"))
	}
	r.say("next: %s", next)
}

// say prints a line unless --quiet.
func (r *Recorder) say(format string, args ...any) {
	if !r.Quiet {
		screen.Complain(r.Stderr, fmt.Sprintf(format, args...))
	}
}

// frameworks returns the names of frameworks that the processes reported, each once.
func frameworks(run *dataset.Run) []string {
	all := []string{} // not nil: run.json has a list in any case
	for _, process := range run.Processes {
		for _, name := range process.FrameworkNames() {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// osName returns the name of the Linux distribution.
func osName() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "Linux"
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Linux"
}

func kernelName() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}
