package main

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/spell"
	"github.com/memprof/memprof/report/units"
)

// formatFlags are the flags of verbs that print text, Markdown or JSON.
type formatFlags struct {
	Format string // "text", "markdown" or "json" after validate
	JSON   bool
}

func (f *formatFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Format, "format", "text", "`format`: text, markdown or json")
	flags.BoolVar(&f.JSON, "json", false, "print JSON, the same as --format json")
}

// validate sets Format. An error is one of wrong usage.
func (f *formatFlags) validate() error {
	if f.JSON {
		f.Format = "json"
	}
	return oneOf("format", f.Format, "text", "markdown", "json")
}

// oneOf fails if the value of a flag is none of the choices: "--flag \"valeu\": want value or other, did you
// mean value?".
func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return exit.Usagef("--%s %q: want %s%s", flag, value, spell.Alternatives(choices), spell.DidYouMean(value, choices...))
}

// sizeFlag is a number of bytes, given as people write sizes: 40GiB.
type sizeFlag int64

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return units.FormatSize(int64(*s))
}

func (s *sizeFlag) Set(text string) error {
	bytes, err := units.ParseSize(text)
	*s = sizeFlag(bytes)
	return err
}

// Type is the word that stands for the value in the help.
func (s *sizeFlag) Type() string { return "size" }
