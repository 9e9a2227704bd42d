package kvserve

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/kvcache"
	kvrequests "github.com/memprof/memprof/analysis/kvcache/requests"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

// Load is the requests that every policy serves; each reads them from the first.
type Load struct {
	Requests  string // a file, or - for stdin
	Synthetic string
	Rates     []float64 // requests a second; each is a run of its own. Empty: the file's times
	Duration  time.Duration
	Draw      bool
	Saturated bool
	Longest   int // tokens of a prompt; 0: any
	Seed      uint64

	// What Prepare finds out.
	Infinite bool              // requests wait at any time
	stdin    []byte            // all of it, where Requests is -
	all      []kvcache.Request // where Draw is set
	limit    int               // tokens of a prompt; 0: none
}

// AddFlags adds the flags that choose the requests.
func (l *Load) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&l.Requests, "requests", "", "`file` of requests, CSV or JSONL; - for stdin")
	flags.StringVar(&l.Synthetic, "synthetic", "", "generate requests like those of a data set, by `name`: "+strings.Join(kvrequests.Names(), ", "))
	flags.Float64SliceVar(&l.Rates, "rate", nil, "`N` requests a second, a Poisson process, in place of the file's times; several, as in 1,2,4, are served one after the other; inf keeps the queue of waiting requests full")
	flags.DurationVar(&l.Duration, "duration", 0, "with --rate: for how long requests arrive")
	flags.BoolVar(&l.Draw, "draw", false, "draw requests from the file at random, without end")
	flags.IntVar(&l.Longest, "longest-prompt", 0, "leave out requests with a prompt of more `tokens`")
	flags.Uint64Var(&l.Seed, "seed", 1, "seed of random draws")
}

// Name is the requests in a word: the name of the file.
func (l *Load) Name() string {
	if l.Requests != "" {
		return filepath.Base(l.name())
	}
	return l.Synthetic
}

// Prepare checks the flags and reads the first request. limit is the longest sequence of the model, in tokens;
// steps of 0 mean all requests.
func (l *Load) Prepare(stdin io.Reader, limit int, steps int64) error {
	if len(l.Rates) == 1 && math.IsInf(l.Rates[0], 1) {
		l.Saturated, l.Rates = true, nil
	}
	if err := l.check(steps); err != nil {
		return err
	}
	l.limit = limit
	l.Infinite = l.Saturated || !l.Paced()
	if l.Requests == "" {
		_, err := kvrequests.Synthetic(l.Synthetic, kvrequests.Pace{})
		if err != nil {
			return exit.Usagef("--synthetic: %w%s", err, plain.DidYouMean(l.Synthetic, kvrequests.Names()...))
		}
		return nil
	}
	if l.Requests == "-" {
		var err error
		if l.stdin, err = io.ReadAll(stdin); err != nil {
			return fmt.Errorf("reading stdin: %w", err)
		}
	}
	file, done, err := l.file()
	if err != nil {
		return err
	}
	defer done()
	src := l.bounded(file)
	first, err := src.Next()
	if err == io.EOF {
		return exit.Usagef("%s has no requests to serve", l.name())
	}
	if err != nil {
		return l.Fault(err)
	}
	if file.Timed() && !l.Paced() && !l.Draw {
		l.Infinite = l.Saturated
	}
	if l.Draw {
		rest, err := kvrequests.ReadAll(src)
		if err != nil {
			return l.Fault(err)
		}
		l.all = append([]kvcache.Request{first}, rest...)
	}
	return nil
}

// Unset says whether no flag chooses requests.
func (l *Load) Unset() bool {
	return l.Requests == "" && l.Synthetic == "" && len(l.Rates) == 0 && l.Duration == 0 && !l.Draw && l.Longest == 0
}

// Paced says whether requests arrive at the rates, and not at the file's times.
func (l *Load) Paced() bool { return len(l.Rates) > 0 }

// Fault adds to an error of the requests what can be done about it.
func (l *Load) Fault(err error) error {
	if errors.Is(err, kvrequests.ErrTooLong) {
		return exit.Usagef("%w (--longest-prompt %d leaves such requests out)", err, l.limit)
	}
	return exit.Input(err)
}

// CheckCount refuses a value below 0 of a flag that counts something.
func CheckCount(flag string, value int64) error {
	if value < 0 {
		return exit.Usagef("--%s %d: want 0 or more", flag, value)
	}
	return nil
}

func (l *Load) check(steps int64) error {
	if err := CheckCount("longest-prompt", int64(l.Longest)); err != nil {
		return err
	}
	endless := l.Draw || l.Synthetic != ""
	switch {
	case (l.Requests == "") == (l.Synthetic == ""):
		return exit.Usagef("kv needs either --requests or --synthetic (see `memprof kv --help`)")
	case slices.ContainsFunc(l.Rates, func(r float64) bool { return !(r > 0) || math.IsInf(r, 0) }):
		return exit.Usagef("--rate %v: want requests a second, above 0", l.Rates)
	case l.Duration < 0 || l.Duration > 0 && !l.Paced():
		return exit.Usagef("--duration %v: want 0 or more, and --rate", l.Duration)
	case l.Longest > 0 && l.Requests == "":
		return exit.Usagef("--longest-prompt needs --requests")
	case l.Draw && l.Requests == "":
		return exit.Usagef("--draw needs --requests")
	case endless && steps == 0 && l.Duration == 0:
		return exit.Usagef("these requests have no end: give --rate and --duration, or --steps")
	}
	return nil
}

func (l *Load) name() string {
	if l.Requests == "-" {
		return "stdin"
	}
	return l.Requests
}

// Line describes the requests, for the report.
func (l *Load) Line() string {
	text := l.Name()
	if l.Draw {
		text += ", drawn"
	}
	switch n := len(l.Rates); {
	case n == 1:
		text += fmt.Sprintf(", %v requests/s", l.Rates[0])
	case n > 1:
		text += fmt.Sprintf(", %v to %v requests/s", slices.Min(l.Rates), slices.Max(l.Rates))
	}
	if l.Infinite {
		text += ", saturated queue"
	}
	return text
}

// Open starts the requests from the first, at one of the rates; 0 where there are none. done is to be called
// after the last. Open may be called from several goroutines.
func (l *Load) Open(rate float64) (src kvcache.Source, done func() error, err error) {
	done = func() error { return nil }
	pace := kvrequests.Pace{Rate: rate, Duration: int64(l.Duration), Seed: l.Seed}
	switch {
	case l.Synthetic != "":
		src, err = kvrequests.Synthetic(l.Synthetic, pace)
	case l.Draw:
		src, err = kvrequests.Draw(l.all, pace)
	default:
		var file kvcache.Source
		if file, done, err = l.file(); err != nil {
			return nil, nil, err
		}
		if src = l.bounded(file); rate > 0 {
			src = kvrequests.Paced(src, pace)
		}
	}
	return src, done, err
}

// bounded leaves out the requests that flags exclude. A request that is too long for the model is an error.
func (l *Load) bounded(file kvcache.Source) kvcache.Source {
	src := kvrequests.Bounded(file, l.Longest)
	if l.limit > 0 {
		src = kvrequests.Limited(src, l.name(), l.limit)
	}
	return src
}

// file opens the requests as CSV, or as JSONL if the text begins with a brace or bracket.
func (l *Load) file() (kvrequests.Reader, func() error, error) {
	var in io.Reader = bytes.NewReader(l.stdin)
	done := func() error { return nil }
	if l.Requests != "-" {
		f, err := os.Open(l.Requests)
		if err != nil {
			return nil, done, exit.Input(err)
		}
		in, done = f, f.Close
	}
	buffered := bufio.NewReader(in)
	if mark, _ := buffered.Peek(3); string(mark) == "\ufeff" {
		buffered.Discard(len(mark))
	}
	start, _ := buffered.Peek(64)
	if start = bytes.TrimSpace(start); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		return kvrequests.NewJSONL(buffered, l.name()), done, nil
	}
	src, err := kvrequests.NewCSV(buffered, l.name())
	if err != nil {
		done()
		return nil, done, exit.Input(err)
	}
	return src, done, nil
}
