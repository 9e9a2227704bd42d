package bfc

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Amount is what the number in a value's text counts.
type Amount int

const (
	// NoAmount is of values that are a word.
	NoAmount Amount = iota
	// Bytes counts bytes.
	Bytes
	// Nanoseconds counts nanoseconds; people write a duration.
	Nanoseconds
)

// Units reads and writes the amounts in values.
type Units struct {
	Bytes, Duration string // the words that stand for them in help and errors
	ParseBytes      func(text string) (uint64, error)
	ParseDuration   func(text string) (time.Duration, error)
	FormatBytes     func(bytes uint64) string
	FormatDuration  func(d time.Duration) string
}

// Plain are decimal numbers of bytes and nanoseconds: those of run.json, arena events and the
// hook's options.
var Plain = &Units{
	Bytes: "BYTES", Duration: "NS",
	ParseBytes: func(text string) (uint64, error) {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			err = fmt.Errorf("%q is not a number of bytes", text)
		}
		return n, err
	},
	ParseDuration: func(text string) (time.Duration, error) {
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			err = fmt.Errorf("%q is not a number of nanoseconds", text)
		}
		return time.Duration(ns), err
	},
	FormatBytes:    func(bytes uint64) string { return strconv.FormatUint(bytes, 10) },
	FormatDuration: func(d time.Duration) string { return strconv.FormatInt(d.Nanoseconds(), 10) },
}

// word is what stands for an amount in help and errors.
func (u *Units) word(a Amount) string {
	if a == Nanoseconds {
		return u.Duration
	}
	return u.Bytes
}

func (u *Units) parse(a Amount, text string) (uint64, error) {
	if a == Nanoseconds {
		d, err := u.ParseDuration(text)
		if err == nil && d < 0 {
			d = 0 // no dimension has such an amount
		}
		return uint64(d), err
	}
	return u.ParseBytes(text)
}

func (u *Units) format(a Amount, amount uint64) string {
	if a == Nanoseconds {
		return u.FormatDuration(time.Duration(amount))
	}
	return u.FormatBytes(amount)
}

// Pattern is a choice as help and errors show it: "double", "step:SIZE", "SIZE".
func (c *Choice) Pattern(u *Units) string {
	switch {
	case c.Amount == NoAmount:
		return c.Word
	case c.Word == "":
		return u.word(c.Amount)
	}
	return c.Word + ":" + u.word(c.Amount)
}

// Set gives a policy the value of a text. After an error the policy is as it was.
func (d *Dimension) Set(p *Policy, text string, u *Units) error {
	for i := range d.Choices {
		c := &d.Choices[i]
		rest, is := text, c.Word == ""
		if c.Word != "" {
			rest, is = strings.CutPrefix(text, c.Word)
		}
		switch {
		case !is:
			continue
		case c.Amount == NoAmount:
			if rest == "" {
				d.set(p, Value{Choice: i})
				return nil
			}
			continue
		case c.Word != "":
			if rest, is = strings.CutPrefix(rest, ":"); !is {
				continue
			}
		}
		amount, err := u.parse(c.Amount, rest)
		if err == nil && (amount > 0 || c.Zero) {
			d.set(p, Value{i, amount})
			return nil
		}
		if len(d.Choices) == 1 && err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		if c.Word != "" && err != nil {
			return fmt.Errorf("%s %q: %w", d.Name, text, err)
		}
		if c.Word != "" {
			return fmt.Errorf("%s %q: want %s with a positive %s", d.Name, text, c.Pattern(u), u.word(c.Amount))
		}
	}
	return d.unknown(text, u)
}

func (d *Dimension) unknown(text string, u *Units) error {
	return fmt.Errorf("unknown %s %q: use %s", d.Name, text, d.Patterns(u))
}

// Patterns are all choices: "double, needed, none or step:SIZE".
func (d *Dimension) Patterns(u *Units) string {
	var patterns []string
	for i := range d.Choices {
		patterns = append(patterns, d.Choices[i].Pattern(u))
	}
	last := len(patterns) - 1
	list := patterns[last]
	if last > 0 {
		list = strings.Join(patterns[:last], ", ") + " or " + list
	}
	return list
}

// mustSet is Set for texts of the tables of this package.
func (d *Dimension) mustSet(p *Policy, text string) {
	if err := d.Set(p, text, Plain); err != nil {
		panic(err)
	}
}

// Text is the value of a policy, as Set reads it in the same units.
func (d *Dimension) Text(p *Policy, u *Units) string {
	v := d.get(p)
	if v.Choice < 0 || v.Choice >= len(d.Choices) {
		return fmt.Sprintf("%s %d", d.Name, v.Choice)
	}
	c := &d.Choices[v.Choice]
	switch {
	case c.Amount == NoAmount:
		return c.Word
	case c.Word == "":
		return u.format(c.Amount, v.Amount)
	}
	return c.Word + ":" + u.format(c.Amount, v.Amount)
}

// HookOptions is the policy as the hook reads it in MEMPROF_OPTIONS: KEY=VALUE with commas between.
func (p Policy) HookOptions() string {
	var words []string
	for _, d := range Dimensions {
		words = append(words, d.Key+"="+d.Text(&p, Plain))
	}
	return strings.Join(words, ",")
}

// Fields is the policy as it stands in an arena event: FIELD=VALUE with blanks between. Small
// arenas are a field of arenas of small requests only, where they are not 0.
func (p Policy) Fields() string {
	var words []string
	for _, d := range Dimensions {
		if d.Field != "" && (d.Field != "below" || p.SmallArenas > 0) {
			words = append(words, d.Field+"="+d.Text(&p, Plain))
		}
	}
	return strings.Join(words, " ")
}

// ParseFields reads the policy of an arena event. What the event does not have, as those of older
// recordings, is as in the zero Policy.
func ParseFields(field func(name string) (value string, ok bool)) (Policy, error) {
	var p Policy
	for _, d := range Dimensions {
		if d.Field == "" {
			continue
		}
		if text, ok := field(d.Field); ok {
			if err := d.Set(&p, text, Plain); err != nil {
				return Policy{}, err
			}
		}
	}
	return p, nil
}

// Settings are what run.json keeps of a policy, by name.
func (p Policy) Settings() map[string]string {
	settings := map[string]string{}
	for _, d := range Dimensions {
		settings[d.Setting()] = d.Text(&p, Plain)
	}
	return settings
}

// ParseSettings reads the policy of a run.json. What it does not have, as those of older
// recordings, is the default.
func ParseSettings(settings map[string]string) (Policy, error) {
	p := Classic()
	for _, d := range Dimensions {
		if text, ok := settings[d.Setting()]; ok {
			if err := d.Set(&p, text, Plain); err != nil {
				return Policy{}, err
			}
		}
	}
	return p, nil
}
