package bfc

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy is what a user chooses of the allocator. ForArena says what each arena gets of it. The zero value is the
// preset classic without a headroom.
type Policy struct {
	Preset Preset
	// Limit is the most that a main arena maps, in bytes; 0 is the device's memory.
	Limit uint64
	// Headroom is what a growth beyond the request leaves free of the device, in bytes.
	Headroom uint64
	// Handle is the size of a CUDA handle in bytes; 0 leaves it to ForArena.
	Handle uint64
	Trim   Trim
}

// Preset says how the arenas of a job grow and when they split chunks.
type Preset int

const (
	// Classic doubles the main arena and splits chunks as the reference does.
	Classic Preset = iota
	// Compact moves free pages before it maps more, and splits always.
	Compact
)

// DefaultHeadroom is the headroom of a policy where nothing else is chosen, in bytes.
const DefaultHeadroom = 2 << 30

var presets = []struct{ name, help string }{
	Classic: {"classic", "the BFC allocator of TensorFlow and of the BFC paper: regions that double, chunks split at twice the request or 128 MiB more than it; the default"},
	Compact: {"compact", "maps no more pages than were in use at a time, and 2 % at most; chunks are split whenever anything is left over"},
}

// Presets are all of them. The first is what a user gets who asks for none.
func Presets() []Preset { return []Preset{Classic, Compact} }

// PresetNames are the names of all presets.
func PresetNames() []string { return []string{Classic.String(), Compact.String()} }

func (p Preset) String() string { return presets[p].name }

// Help says what the preset does.
func (p Preset) Help() string { return presets[p].help }

// Policy is the preset with the default of everything else.
func (p Preset) Policy() Policy { return Policy{Preset: p, Headroom: DefaultHeadroom} }

// ParsePreset returns the preset of a name.
func ParsePreset(name string) (Preset, error) {
	at := slices.Index(PresetNames(), name)
	if at < 0 {
		return 0, fmt.Errorf("unknown preset %q: use %s", name, strings.Join(PresetNames(), " or "))
	}
	return Preset(at), nil
}

// Growth says how much memory an allocator asks for when nothing fits.
type Growth int

const (
	// Double asks for regions that double from 2 MiB: the classic policy.
	Double Growth = iota
	// Needed asks for what the request lacks, and no more.
	Needed
	// Pages asks for what the request lacks once the pages that are free anywhere are used up: no more
	// are mapped than blocks have ever touched at a time, and 2 % at most.
	Pages
	// Whole asks for the whole limit, at the first request. No arena of the hook has it.
	Whole
)

var growths = []string{Double: "double", Needed: "needed", Pages: "pages", Whole: "whole"}

func (g Growth) String() string { return growths[g] }

// Split says when a chunk is split.
type Split int

const (
	// SplitClassic splits chunks of twice the request, or with an excess of 128 MiB.
	SplitClassic Split = iota
	// SplitAlways splits wherever anything is left over.
	SplitAlways
)

var splits = []string{SplitClassic: "classic", SplitAlways: "always"}

func (s Split) String() string { return splits[s] }

// Trim says when the owner of an allocator unmaps free pages.
type Trim struct {
	When TrimWhen
	// Idle is for how long nothing was requested or freed, with TrimIdle; positive there.
	Idle time.Duration
}

// TrimWhen is the occasion of a trim.
type TrimWhen int

const (
	// TrimNever keeps all that was mapped.
	TrimNever TrimWhen = iota
	// TrimIteration unmaps, at the end of an iteration, the free pages that it did not touch.
	TrimIteration
	// TrimIdle unmaps all that is free once nothing has happened for a while.
	TrimIdle
)

// String is the trim as ParseTrim reads it with ParseNanoseconds: the form of events and of the hook's options.
func (t Trim) String() string {
	return t.Text(func(d time.Duration) string { return strconv.FormatInt(d.Nanoseconds(), 10) })
}

// Text is never, iteration or idle:TIME, with the time as format has it.
func (t Trim) Text(format func(time.Duration) string) string {
	switch t.When {
	case TrimIteration:
		return "iteration"
	case TrimIdle:
		return "idle:" + format(t.Idle)
	}
	return "never"
}

// ParseTrim reads never, iteration or idle:TIME, with the time as parse reads it.
func ParseTrim(text string, parse func(string) (time.Duration, error)) (Trim, error) {
	switch text {
	case "never":
		return Trim{}, nil
	case "iteration":
		return Trim{When: TrimIteration}, nil
	}
	idle, is := strings.CutPrefix(text, "idle:")
	if !is {
		return Trim{}, fmt.Errorf("unknown trim %q: use never, iteration or idle:DURATION", text)
	}
	d, err := parse(idle)
	if err == nil && d <= 0 {
		err = fmt.Errorf("want a positive time")
	}
	if err != nil {
		return Trim{}, fmt.Errorf("trim %q: %w", text, err)
	}
	return Trim{TrimIdle, d}, nil
}

// ParseNanoseconds reads a number of nanoseconds.
func ParseNanoseconds(text string) (time.Duration, error) {
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		err = fmt.Errorf("%q is not a number of nanoseconds", text)
	}
	return time.Duration(ns), err
}

// Settings are what run.json keeps of a policy, by name: numbers are bytes and nanoseconds.
func (p Policy) Settings() map[string]string {
	return map[string]string{
		"preset": p.Preset.String(), "limit": fmt.Sprint(p.Limit), "headroom": fmt.Sprint(p.Headroom), "handle": fmt.Sprint(p.Handle), "trim": p.Trim.String(),
	}
}

// HookOptions is the policy as the hook reads it in MEMPROF_OPTIONS: KEY=VALUE with commas between.
func (p Policy) HookOptions() string {
	return fmt.Sprintf("preset=%s,limit=%d,headroom=%d,handle=%d,trim=%s", p.Preset, p.Limit, p.Headroom, p.Handle, p.Trim)
}

// NoLimit is the Options.Limit of an allocator without a limit.
const NoLimit = math.MaxUint64

// Options are the parameters of the policy. The zero value has a limit of 0, under which
// every request fails.
type Options struct {
	// Limit is the most bytes that may be mapped at a time; NoLimit: any.
	Limit uint64
	// Headroom is how many bytes of the device a growth beyond the request leaves free. With 0
	// the memory is never asked what is free.
	Headroom uint64
	// FragmentationFraction, if positive and with SplitClassic, makes the slack from which a
	// chunk is split this share of Limit instead of 128 MiB.
	FragmentationFraction float64
	// Growth says how much the memory is asked for at a time.
	Growth Growth
	// Split says when a chunk is split.
	Split Split
	// Trim says when the owner unmaps free pages. With TrimIteration the allocator notes when blocks
	// last touched each page.
	Trim Trim
	// GarbageCollection releases idle regions before a request fails.
	GarbageCollection bool
}

// Fields are the options of an arena's allocator as they stand in its arena event: FIELD=VALUE with blanks between.
func (o Options) Fields() string {
	return fmt.Sprintf("growth=%s split=%s trim=%s headroom=%d", o.Growth, o.Split, o.Trim, o.Headroom)
}

// ErrGone is of arenas that were recorded under a policy that memprof no longer has.
var ErrGone = errors.New("the recording has a policy that this version no longer has")

func errGone(name, text string) error {
	return fmt.Errorf("%w, %s=%s: record the job again", ErrGone, name, text)
}

// wrongField says that an event has a value that no arena has, or none has any longer.
func wrongField(name, text string) error {
	word, _, _ := strings.Cut(text, ":")
	_, notNumber := strconv.ParseUint(text, 10, 64)
	if slices.Contains([]string{"none", "step", "planned", "pressure"}, word) || notNumber == nil {
		return errGone(name, text)
	}
	return fmt.Errorf("unknown %s %q", name, text)
}

// ParseFields reads the options of an arena's allocator from its arena event, in which main=1 says that it is a
// main one. What the event does not have, as those of older recordings, is as in preset classic. Events of
// policies that were removed are an error.
func ParseFields(field func(name string) (value string, ok bool)) (Options, error) {
	get := func(name, absent string) string {
		if text, ok := field(name); ok {
			return text
		}
		return absent
	}
	var o Options
	var wrong error
	fail := func(err error) { wrong = cmp.Or(wrong, err) }
	choice := func(name, absent string, of []string) int {
		text := get(name, absent)
		at := slices.Index(of, text)
		if at < 0 {
			fail(wrongField(name, text))
		}
		return at
	}
	o.Growth = Growth(choice("growth", "double", growths[:Whole]))
	o.Split = Split(choice("split", "classic", splits))
	choice("placement", "best-fit", []string{"best-fit"})
	choice("below", "0", []string{"0"})
	var err error
	if text := get("trim", "never"); text == "pressure" {
		fail(wrongField("trim", text))
	} else if o.Trim, err = ParseTrim(text, ParseNanoseconds); err != nil {
		fail(err)
	}
	if o.Headroom, err = strconv.ParseUint(get("headroom", "0"), 10, 64); err != nil {
		fail(fmt.Errorf("headroom=%q is not a number of bytes", get("headroom", "0")))
	}
	if wrong == nil && get("main", "0") == "1" {
		switch {
		case o.Growth == Needed:
			fail(errGone("growth", "needed"))
		case o.Growth == Double && o.Split != SplitClassic, o.Growth == Pages && o.Split != SplitAlways:
			fail(errGone("split", o.Split.String()))
		}
	}
	if wrong != nil {
		return Options{}, wrong
	}
	return o, nil
}

// Preset is the preset whose main arena has these options.
func (o Options) Preset() Preset {
	if o.Growth == Pages {
		return Compact
	}
	return Classic
}
