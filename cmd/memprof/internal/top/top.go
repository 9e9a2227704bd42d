// Package top watches a recording in progress without touching it, and shows what its job has on the GPU.
package top

import (
	"cmp"
	"context"
	"io"
	"net/url"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/hooks/nvml"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
)

// Options are how top shows a recording.
type Options struct {
	Interval time.Duration    // between two looks
	Once     bool             // look once and end
	JSON     bool             // print an object for each look
	Listen   string           // serve the looks as OpenMetrics at this address; "" for none
	Listens  func(url string) // called once with the address that is served
	Engines  []*url.URL       // serving engines whose metrics are shown beside
}

// ShortestInterval keeps top from slowing the job down.
const ShortestInterval = 50 * time.Millisecond

// endsWithin is how long an update may go on after a signal.
const endsWithin = 300 * time.Millisecond

// Run shows the recording until it ends or a signal comes. The signal ends it whatever is being read or
// written: a recording that grows faster than it is read, a file that is a pipe, a terminal that does not take
// output.
func Run(ctx context.Context, stdout io.Writer, path string, o Options) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	screen := &display{w: stdout, json: o.JSON, once: o.Once}
	done := make(chan error, 1)
	go func() { done <- o.watch(ctx, screen, path) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(endsWithin):
		screen.abandon()
		return nil
	}
}

// watch prints an update at each interval until the recording ends, or ctx is done.
func (o *Options) watch(ctx context.Context, screen *display, path string) error {
	follower, err := collect.Follow(path)
	if err != nil {
		return exit.Input(err)
	}
	defer follower.Close()
	t := &top{follower: follower, path: path, lives: map[*collect.Followed]*liveProcess{}, cards: newCardWatch(ctx, &follower.Info, o.Interval, nvml.Read)}
	t.engines = newEngineWatch(ctx, o.Engines, o.Interval)
	defer screen.leave()
	var served *endpoint
	if o.Listen != "" {
		if served, err = listen(o.Listen); err != nil {
			return exit.Usagef("--listen %s: %w", o.Listen, err)
		}
		defer served.close()
		o.Listens(served.url())
	}
	for {
		look, err := t.look()
		if err != nil {
			return exit.Input(err)
		}
		served.set(&look)
		if err := screen.show(&look); err != nil {
			return err
		}
		if o.Once || look.Ended || t.abandoned > abandonedLooks {
			return screen.last(&look)
		}
		select {
		case <-ctx.Done():
			return screen.last(&look)
		case <-time.After(o.Interval):
		}
	}
}

// top is the state between two updates.
type top struct {
	follower *collect.Follower
	path     string
	lives    map[*collect.Followed]*liveProcess
	cards    *cardWatch
	engines  *engineWatch
	before   time.Time // of the last look; zero before the first

	abandoned int // looks in a row at which nobody recorded
}

// abandonedLooks is how many updates in a row without a recorder or job end top. Fewer may be a recording that
// is only just beginning.
const abandonedLooks = 3

// liveProcess is a process whose events are followed.
type liveProcess struct {
	live   *analysis.Live
	failed error // its events cannot be: what is shown of it is of before
	events int64 // at the last look
}

// View is the content of one update, and what --json prints. Units: bytes, events a second, nanoseconds.
type View struct {
	Version   int       `json:"version"`
	Time      time.Time `json:"time"`
	Ended     bool      `json:"ended"`
	Abandoned bool      `json:"abandoned"` // neither the recorder nor a process of the job lives any more
	Command   []string  `json:"command"`
	Host      string    `json:"host"`
	Processes []Process `json:"processes"`
	Cards     []Card    `json:"cards"`
	Engines   []Engine  `json:"engines"`

	path string // of the run
}

type Process struct {
	Process   string   `json:"process"`
	PID       int      `json:"pid"`
	Ended     bool     `json:"ended"`
	Events    int64    `json:"events"`
	Rate      *float64 `json:"events_per_second"` // null at the first look
	TimeNS    int64    `json:"time_ns"`
	Iteration *int64   `json:"iteration"`
	Phase     string   `json:"phase"`
	Problem   string   `json:"problem,omitempty"`
	Devices   []Memory `json:"devices"`
	Arenas    []Memory `json:"arenas"`
}

// Memory is a device, or an arena and the device it is on.
type Memory struct {
	Device       int32  `json:"device"`
	Arena        *int32 `json:"arena,omitempty"`
	Stream       *int64 `json:"stream,omitempty"`
	Pool         string `json:"pool,omitempty"`
	Tag          string `json:"tag,omitempty"`
	IsPaused     bool   `json:"is_paused,omitempty"` // of an arena: its bytes count in no number of its device but paused
	Requested    int64  `json:"requested"`
	Provided     *int64 `json:"provided"` // null with the native allocator, whose chunks are not known
	Reserved     int64  `json:"reserved"`
	Pending      int64  `json:"pending"`
	Stranded     int64  `json:"stranded"`
	Reserve      int64  `json:"reserve"`
	Reusable     int64  `json:"reusable"`
	External     int64  `json:"external"`
	Paused       int64  `json:"paused"`
	Live         int64  `json:"live"`
	MaxReserved  int64  `json:"max_reserved"`
	MaxRequested *int64 `json:"max_requested,omitempty"`
	OOMs         *int64 `json:"ooms,omitempty"`

	Course     []int64 `json:"reserved_course,omitempty"` // of a device: the greatest R in equal stretches of time since its first event
	Categories []Share `json:"categories,omitempty"`      // of a device: what is live, greatest first
	Modules    []Share `json:"modules,omitempty"`         // likewise the greatest of them

	held *attribution.Result // of a device: what is live; nil if that is not known
}

// Share is a part of the live allocations of a device.
type Share struct {
	Name      string `json:"name"`
	Requested int64  `json:"requested"`
	Live      int64  `json:"live"`
}

// Card is a card as NVML has it.
type Card struct {
	Index int    `json:"index"`
	Name  string `json:"name"`
	Used  *int64 `json:"used"` // null where it cannot be asked
	Total int64  `json:"total"`
}

// jsonVersion is that of the JSON: names may be added in one.
const jsonVersion = 1

func (t *top) look() (View, error) {
	look := View{Version: jsonVersion, Time: time.Now(), Command: t.follower.Info.Command, Host: t.follower.Info.Host, Processes: []Process{}}
	// Before the events: if it is over by now, they are all there.
	ended, err := t.follower.Ended()
	if err != nil {
		return look, err
	}
	look.Ended = ended
	if look.Abandoned, err = t.follower.Abandoned(); err != nil {
		return look, err
	}
	if t.abandoned++; !look.Abandoned {
		t.abandoned = 0
	}
	processes, err := t.follower.Processes()
	if err != nil {
		return look, err
	}
	since := look.Time.Sub(t.before)
	for _, p := range processes {
		l := t.lives[p]
		first := l == nil
		if first {
			l = &liveProcess{live: analysis.NewLive(analysis.Options{})}
			t.lives[p] = l
		}
		if l.failed == nil {
			if err := l.follow(p); err != nil {
				return look, err
			}
		}
		seen := l.see(p)
		if !first && !t.before.IsZero() && since > 0 {
			rate := float64(seen.Events-l.events) / since.Seconds()
			seen.Rate = &rate
		}
		l.events = seen.Events
		look.Processes = append(look.Processes, seen)
	}
	t.before = look.Time
	look.path = t.path
	look.Cards, look.Engines = t.cards.used(), t.engines.now()
	return look, nil
}

// follow reads the events since the last update.
func (l *liveProcess) follow(p *collect.Followed) error {
	begin := func(firstSeq int64) {
		l.live = analysis.NewLive(analysis.Options{Process: p.Name, Text: p.Strings().Text, FirstSeq: firstSeq})
	}
	err := p.Poll(begin, func(e *trace.Event) error {
		if l.failed == nil {
			l.failed = l.live.Add(e)
		}
		return nil
	})
	return err
}

func (l *liveProcess) see(p *collect.Followed) Process {
	state := l.live.State()
	seen := Process{
		Process: p.Name, PID: p.PID, Ended: p.Ended(), Events: state.Seq + 1, TimeNS: state.Time, Phase: state.Phase,
		Devices: []Memory{}, Arenas: []Memory{},
	}
	if number := state.Iteration; number >= 0 {
		if !seen.Ended { // it is in the one after the last mark
			number++
		}
		seen.Iteration = &number
	}
	if l.failed != nil {
		seen.Problem = l.failed.Error()
	}
	for _, d := range state.Devices {
		m := newMemory(d.Device, &d.Now, d.MaxR)
		m.MaxRequested, m.OOMs = &d.MaxT, &d.OOMs
		m.Course = l.live.Course(d.Device, courseLength)
		if held, err := l.live.Held(d.Device); err == nil && held != nil && held.Known {
			m.held = held
			m.Categories, m.Modules = shares(held.Categories.Groups, len(held.Categories.Groups)), shares(held.Modules.Groups, mostModules)
		}
		seen.Devices = append(seen.Devices, m)
	}
	for _, a := range state.Arenas {
		m := newMemory(a.Info.Device, &a.Now, a.MaxR)
		m.Arena, m.Stream = &a.Info.ID, &a.Info.Stream
		m.Tag, m.IsPaused = a.Info.Options["tag"], a.Paused
		if pool := a.Info.Options["pool"]; pool != "0" && pool != "0.0" {
			m.Pool = pool
		}
		seen.Arenas = append(seen.Arenas, m)
	}
	return seen
}

const (
	courseLength = 24 // stretches of time of Memory.Course
	mostModules  = 8
)

// shares are the greatest groups that have any bytes, of allocations that say so.
func shares(groups []attribution.Group, most int) []Share {
	var all []Share
	for _, g := range groups {
		if g.Requested > 0 && g.Name != "" && len(all) < most {
			all = append(all, Share{g.Name, g.Requested, g.Blocks})
		}
	}
	slices.SortStableFunc(all, func(a, b Share) int { return cmp.Compare(b.Requested, a.Requested) })
	return all
}

func newMemory(device int32, at *ledger.Instant, maxReserved int64) Memory {
	m := Memory{
		Device: device, Requested: at.T, Reserved: at.R, Pending: at.Pending, Stranded: at.Stranded, Reserve: at.Reserve, Reusable: at.Reusable, External: at.External,
		Paused: at.Paused, Live: at.Live, MaxReserved: maxReserved,
	}
	if at.C >= 0 {
		m.Provided = &at.C
	}
	return m
}
