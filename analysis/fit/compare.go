package fit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
)

// Replayed is a process under an allocator on the device that it was recorded on.
type Replayed struct {
	Allocator
	Recorded bool
	Reserved int64 // the greatest, in bytes
	// Least and Greatest are those of Reserved over all placements of segments that were tried: the driver's choice, which no
	// recording has. Of memprof's allocator they are equal.
	Least, Greatest int64
	Refused         int64 // requests
	// Calls are driver calls that requests wait for in a steady iteration, one for each handle, and Cost is their time.
	Calls float64
	Cost  time.Duration
}

// Comparison is a process under all allocators that are worth a row.
type Comparison struct {
	Process    string
	Requests   int64
	Requested  int64 // the greatest, in bytes
	Iterations int64
	Duration   time.Duration // of a steady iteration, as recorded; 0: not known
	Simulated  bool          // on a device whose work takes no time, so that it is not
	// Measured is how long the recorded allocator's driver calls took in a steady iteration, with what waited for the GPU, by its own count, and
	// Scale how much longer all its calls took than its replay says. Where they were not counted, as by earlier recorders, they are 0 and 1.
	Measured time.Duration
	Scale    float64
	LeftOut  int64      // arenas of graph memory, which are not replayed
	Rows     []Replayed // PyTorch's own allocator, then memprof's
}

// Slowdown is by which share of its recorded time a steady iteration is longer; -1 where the time is not known. The recorded time has the recorded allocator's
// own calls, which were measured: those of another one take their place.
func (c *Comparison) Slowdown(row int) float64 {
	switch r := &c.Rows[row]; {
	case c.Duration <= 0:
		return -1
	case r.Recorded && c.Measured > 0:
		return 0
	default:
		return max(0, float64(r.Cost)*c.Scale-float64(c.Measured)) / float64(c.Duration)
	}
}

// leastScaled is the least predicted time of driver calls that the measured time is compared with: beside less, what else the hook asks of the driver counts.
const leastScaled = time.Millisecond

// measure takes what the recorded allocator has counted, and what its replay says of it.
func (c *Comparison) measure(j *Job, log *iterations.CallLog, recorded *tune.Outcome) {
	c.Scale = 1
	if !log.Known || j.Simulated {
		return
	}
	if calls, n := log.Steady(); n > 0 {
		c.Measured = (calls.Time + calls.Waited) / time.Duration(n)
	}
	if recorded != nil && recorded.Whole >= leastScaled {
		c.Scale = float64(log.Total.Time) / float64(recorded.Whole)
	}
}

// torchSettings are the texts of PYTORCH_CUDA_ALLOC_CONF that are tried. Those with a limit are not: each card has another.
var torchSettings = []string{
	native, expandable, "max_split_size_mb:64", "max_split_size_mb:128", "max_split_size_mb:256", "max_split_size_mb:512",
	"roundup_power2_divisions:4", "roundup_power2_divisions:8",
}

// Placements is how many placements of segments, beside the driver's own, each setting is tried with that has a row.
const Placements = 24

// Compare replays a process under the presets, compact with a trim and with other handles, and a job of PyTorch's under its own
// allocator with several settings. Without all, rows are left out that differ little from others. The error may be
// [tune.ErrNothing].
func Compare(ctx context.Context, j *Job, all bool) (*Comparison, error) {
	c := &Comparison{Process: j.Name}
	survey, err := Look(j)
	if err != nil {
		return nil, err
	}
	if err := c.memprof(ctx, j, survey, all); err != nil {
		return nil, fmt.Errorf("%s: %w", j.Name, err)
	}
	if j.Torch == nil {
		return c, nil
	}
	if err := c.torch(j, survey, all); err != nil {
		return nil, fmt.Errorf("%s: replay under PyTorch's allocator: %w", j.Name, err)
	}
	return c, nil
}

func (c *Comparison) memprof(ctx context.Context, j *Job, s *Survey, all bool) error {
	policies := tune.Compared()
	if j.Recorded.Allocator == "memprof" && !slices.Contains(policies, j.Recorded.Policy) {
		policies = append(policies, j.Recorded.Policy)
	}
	return c.replay(ctx, j, s, policies, all)
}

// tuned replays a process under policies: a part of them in each pass, side by side.
func (s *Survey) tuned(ctx context.Context, j *Job, policies []bfc.Policy) (*tune.Result, error) {
	size := min(s.together(), (len(policies)+cap(s.room)-1)/cap(s.room))
	results := make([]*tune.Result, (len(policies)+size-1)/size)
	var parts errgroup.Group
	for i := range results {
		parts.Go(func() error {
			s.room <- struct{}{}
			defer func() { <-s.room }()
			source, err := s.open(j)
			if err != nil {
				return err
			}
			defer source.Close()
			part := policies[i*size : min(len(policies), (i+1)*size)]
			results[i], err = tune.Run(ctx, source, tune.Options{Policies: part, Text: j.Text, Blocks: s.Blocks})
			return err
		})
	}
	if err := parts.Wait(); err != nil {
		return nil, err
	}
	for _, other := range results[1:] {
		results[0].Outcomes = append(results[0].Outcomes, other.Outcomes...)
	}
	return results[0], nil
}

// replay adds the rows of some policies.
func (c *Comparison) replay(ctx context.Context, j *Job, s *Survey, policies []bfc.Policy, all bool) error {
	tuned, err := s.tuned(ctx, j, policies)
	if err != nil {
		return err
	}
	first := &tuned.Outcomes[0]
	c.Requests, c.LeftOut, c.Requested, c.Iterations, c.Duration = tuned.Allocs, tuned.LeftOut, first.PeakT, first.Iterations, first.Duration
	if c.Simulated = j.Simulated; c.Simulated {
		c.Duration = 0
	}
	var recorded *tune.Outcome
	for i := range tuned.Outcomes {
		o := &tuned.Outcomes[i]
		row := Replayed{Allocator: Allocator{Allocator: "memprof", Policy: o.Policy}, Reserved: o.PeakR, Least: o.PeakR, Greatest: o.PeakR, Refused: o.Refused, Calls: o.Calls, Cost: o.Cost}
		row.Recorded = row.Allocator == j.Recorded
		if row.Recorded {
			recorded = o
		}
		if all || row.Recorded || !c.hasAlike(&row) {
			c.Rows = append(c.Rows, row)
		}
	}
	c.measure(j, &tuned.Measured, recorded)
	return nil
}

// alike is the share by which two numbers may differ and still count as equal.
const alike = 0.01

// hasAlike says whether a row with other handles differs by less than 1 % in peak and driver calls from the preset's own.
func (c *Comparison) hasAlike(row *Replayed) bool {
	near := func(a, b float64) bool { return math.Abs(a-b) <= alike*b }
	return row.Policy.Handle != 0 && slices.ContainsFunc(c.Rows, func(usual Replayed) bool {
		return usual.Policy == row.Policy.Preset.Policy() && usual.Refused == row.Refused && near(float64(row.Reserved), float64(usual.Reserved)) && near(row.Calls, usual.Calls)
	})
}

// torch puts the rows of PyTorch's own allocator first: as it is, with expandable segments, as recorded, and of all others
// the one that reserves least.
func (c *Comparison) torch(j *Job, s *Survey, all bool) error {
	settings := torchSettings
	if j.Recorded.Allocator == "torch" && !slices.Contains(settings, j.Recorded.Setting) {
		if _, err := parseSetting(j.Recorded.Setting, *j.Torch); err == nil {
			settings = append(slices.Clone(settings), j.Recorded.Setting)
		}
	}
	rows, err := replaySettings(j, s, settings, 0)
	if err != nil {
		return err
	}
	best := 0
	for i := range rows {
		if rows[i].Refused == 0 && (rows[best].Refused > 0 || rows[i].Reserved < rows[best].Reserved) {
			best = i
		}
	}
	var shown []string
	for i := range rows {
		if all || rows[i].Allocator == j.Recorded || i == best || i < 2 {
			shown = append(shown, settings[i])
		}
	}
	if rows, err = replaySettings(j, s, shown, Placements); err != nil {
		return err
	}
	for i := range rows {
		rows[i].Recorded = rows[i].Allocator == j.Recorded
	}
	c.Rows = append(rows, c.Rows...)
	return nil
}

// replaySettings replays a process under settings of PyTorch's allocator, with so many further placements of segments. Those that no request
// of the process distinguishes are replayed once.
func replaySettings(j *Job, s *Survey, texts []string, placements int) (rows []Replayed, err error) {
	o := torchalloc.Options{Version: *j.Torch, Placements: placements, NoWaits: !s.Waits, Text: j.Text, Opening: j.Opening}
	var of []int // by text, the index of its settings
	for _, text := range texts {
		parsed, err := parseSetting(text, *j.Torch)
		if err != nil {
			return nil, err
		}
		parsed = parsed.Upto(uint64(s.Greatest))
		at := slices.Index(o.Settings, parsed)
		if at < 0 {
			at, o.Settings, o.Recorded = len(o.Settings), append(o.Settings, parsed), append(o.Recorded, false)
		}
		o.Recorded[at] = o.Recorded[at] || Allocator{Allocator: "torch", Setting: text} == j.Recorded
		of = append(of, at)
	}
	outcomes, err := torchalloc.RunParts(func() (Source, error) { return s.open(j) }, o, s.together())
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		o := &outcomes[of[i]]
		rows = append(rows, Replayed{
			Allocator: Allocator{Allocator: "torch", Setting: text}, Reserved: sum(o.Reserved), Least: sum(o.Least), Greatest: sum(o.Greatest), Refused: o.Refused, Calls: o.Maps + o.Unmaps,
			Cost: time.Duration(o.Maps*float64(tune.CostCreate+tune.CostMap+tune.CostAccess) + o.Unmaps*float64(tune.CostUnmap+tune.CostRelease)),
		})
	}
	return rows, nil
}

func sum(byDevice map[int32]int64) (bytes int64) {
	for _, n := range byDevice {
		bytes += n
	}
	return bytes
}

func parseSetting(text string, version torchalloc.Version) (torchalloc.Settings, error) {
	if text == native {
		text = ""
	}
	return torchalloc.ParseSettings(text, version)
}

// mostSlowdown is by which share a recommended allocator may make an iteration longer.
const mostSlowdown = 0.01

// Recommend returns the row with the least card of those that serve all requests and are not slow: of several within 1 % the
// recorded one, or the first. Where the job fits the card that was asked about under some of them, slow or not, it is one of these. It
// returns -1 if there is none. needs are those of the rows.
func (c *Comparison) Recommend(needs []Row) int {
	fits := slices.ContainsFunc(needs, func(row Row) bool { return row.Fits })
	for _, slowest := range []float64{mostSlowdown, math.Inf(1)} {
		served := func(i int) bool {
			return c.Rows[i].Refused == 0 && c.Slowdown(i) <= slowest && (!fits || needs[i].Fits)
		}
		least, best := int64(math.MaxInt64), -1
		for i := range c.Rows {
			if served(i) {
				least = min(least, needs[i].Bytes)
			}
		}
		for i := range c.Rows {
			if served(i) && float64(needs[i].Bytes) <= (1+alike)*float64(least) && (best < 0 || c.Rows[i].Recorded) {
				best = i
			}
		}
		if best >= 0 || !fits {
			return best
		}
	}
	return -1
}
