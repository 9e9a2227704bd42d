package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace"
)

type topOptions struct {
	Interval time.Duration
	Once     bool
	JSON     bool
}

func newTopCommand() *cobra.Command {
	var opts topOptions
	cmd := &cobra.Command{
		Use:   "top PATH",
		Short: "Watch a recording in progress",
		Long: `Shows from a second terminal what a job that is being recorded has on the GPU:
requested, provided and reserved bytes of each device and arena, the phase and
iteration it is in (counted from 0; of a process that ended, its last one), how
many events it makes a second, and what NVML says the cards have in use. It
reads the recording and changes nothing about it. It ends when the recording
does, or by Ctrl-C.

On a terminal the screen is drawn anew at each interval; elsewhere each interval
is a line for each process, or with --json an object on a line.`,
		Annotations: exitCodes(topExits),
		Example: `  memprof top run
  memprof top run --once --json | jq '.processes[].devices[].reserved'`,
		Args: exactArgs("the directory of a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	return cmd
}

func (o *topOptions) addFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&o.Interval, "interval", time.Second, "`time` between two looks, like 500ms")
	flags.BoolVar(&o.Once, "once", false, "look once, print, and end")
	flags.BoolVar(&o.JSON, "json", false, "print JSON, an object for each look")
}

// shortestInterval keeps top from costing the job anything.
const shortestInterval = 50 * time.Millisecond

// endsWithin is how long a look that goes on has after a signal to come to its end.
const endsWithin = 300 * time.Millisecond

// run watches until the recording ends, or a signal comes. The signal counts whatever is being read or
// written then: a recording that grows faster than it is read, a file that is a pipe, a terminal that stands.
func (o *topOptions) run(ctx context.Context, stdout io.Writer, path string) error {
	if o.Interval < shortestInterval {
		return exit.Usagef("--interval %v: want at least %v", o.Interval, shortestInterval)
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	screen := newTopScreen(stdout, o)
	watched := make(chan error, 1)
	go func() { watched <- o.watch(ctx, screen, path) }()
	select {
	case err := <-watched:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-watched:
		return err
	case <-time.After(endsWithin):
		screen.abandon()
		return nil
	}
}

// watch looks at the recording at each interval until it ends, or ctx does.
func (o *topOptions) watch(ctx context.Context, screen *topScreen, path string) error {
	follower, err := trace.Follow(path)
	if err != nil {
		return exit.Input(err)
	}
	defer follower.Close()
	t := &top{follower: follower, path: path, lives: map[*trace.Followed]*liveProcess{}, cards: newCardWatch(&follower.Info, o.Interval)}
	defer screen.leave()
	for {
		look, err := t.look()
		if err != nil {
			return exit.Input(err)
		}
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

// top is the state between two looks.
type top struct {
	follower *trace.Follower
	path     string
	lives    map[*trace.Followed]*liveProcess
	cards    *cardWatch
	before   time.Time // of the last look; zero before the first

	abandoned int // looks in a row at which nobody recorded
}

// abandonedLooks in a row are taken for a recording that is only just beginning.
const abandonedLooks = 3

// liveProcess is a process that is followed.
type liveProcess struct {
	live   *analysis.Live
	failed error // its events cannot be: what is shown of it is of before
	events int64 // at the last look
}

// topLook is what one look sees. It is what --json prints: bytes, events a second, nanoseconds.
type topLook struct {
	Version   int          `json:"version"`
	Time      time.Time    `json:"time"`
	Ended     bool         `json:"ended"`
	Abandoned bool         `json:"abandoned"` // neither the recorder nor a process of the job lives any more
	Command   []string     `json:"command"`
	Host      string       `json:"host"`
	Processes []topProcess `json:"processes"`
	Cards     []topCard    `json:"cards"`

	path string // of the run
}

type topProcess struct {
	Process   string      `json:"process"`
	PID       int         `json:"pid"`
	Ended     bool        `json:"ended"`
	Events    int64       `json:"events"`
	Rate      *float64    `json:"events_per_second"` // null at the first look
	TimeNS    int64       `json:"time_ns"`
	Iteration *int64      `json:"iteration"`
	Phase     string      `json:"phase"`
	Problem   string      `json:"problem,omitempty"`
	Devices   []topMemory `json:"devices"`
	Arenas    []topMemory `json:"arenas"`
}

// topMemory is a device, or an arena and the device it is on.
type topMemory struct {
	Device       int32  `json:"device"`
	Arena        *int32 `json:"arena,omitempty"`
	Stream       *int64 `json:"stream,omitempty"`
	Pool         string `json:"pool,omitempty"`
	Tag          string `json:"tag,omitempty"`
	Asleep       bool   `json:"asleep,omitempty"` // an arena that is paused: in no number of its device but paused
	Requested    int64  `json:"requested"`
	Provided     *int64 `json:"provided"` // null where chunks are not told
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
}

// topCard is a card as NVML has it.
type topCard struct {
	Index int    `json:"index"`
	Name  string `json:"name"`
	Used  *int64 `json:"used"` // null where it cannot be asked
	Total int64  `json:"total"`
}

// topVersion is that of the JSON: names may be added in one.
const topVersion = 1

func (t *top) look() (topLook, error) {
	look := topLook{Version: topVersion, Time: time.Now(), Command: t.follower.Info.Command, Host: t.follower.Info.Host, Processes: []topProcess{}}
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
	look.Cards = t.cards.used()
	return look, nil
}

// follow takes the events since the last look.
func (l *liveProcess) follow(p *trace.Followed) error {
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

func (l *liveProcess) see(p *trace.Followed) topProcess {
	state := l.live.State()
	seen := topProcess{
		Process: p.Name, PID: p.PID, Ended: p.Ended(), Events: state.Seq + 1, TimeNS: state.Time, Phase: state.Phase,
		Devices: []topMemory{}, Arenas: []topMemory{},
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
		m := newTopMemory(d.Device, &d.Now, d.MaxR)
		m.MaxRequested, m.OOMs = &d.MaxT, &d.OOMs
		seen.Devices = append(seen.Devices, m)
	}
	for _, a := range state.Arenas {
		m := newTopMemory(a.Info.Device, &a.Now, a.MaxR)
		m.Arena, m.Stream = &a.Info.ID, &a.Info.Stream
		m.Tag, m.Asleep = a.Info.Options["tag"], a.Paused
		if pool := a.Info.Options["pool"]; pool != "0" && pool != "0.0" {
			m.Pool = pool
		}
		seen.Arenas = append(seen.Arenas, m)
	}
	return seen
}

func newTopMemory(device int32, at *analysis.Instant, maxReserved int64) topMemory {
	m := topMemory{
		Device: device, Requested: at.T, Reserved: at.R, Pending: at.Pending, Stranded: at.Stranded, Reserve: at.Reserve, Reusable: at.Reusable, External: at.External,
		Paused: at.Paused, Live: at.Live, MaxReserved: maxReserved,
	}
	if at.C >= 0 {
		m.Provided = &at.C
	}
	return m
}

// name is what a row of memory is called.
func (m *topMemory) name() string {
	if m.Arena == nil {
		return fmt.Sprintf("GPU %d", m.Device)
	}
	text := fmt.Sprintf("arena %d", *m.Arena)
	switch {
	case m.Tag != "":
		text += " tag " + m.Tag
	case m.Pool != "":
		text += " pool " + m.Pool
	case *m.Stream != 0:
		text += fmt.Sprintf(" stream %#x", *m.Stream)
	}
	if m.Asleep {
		text += ", asleep"
	}
	return text
}
