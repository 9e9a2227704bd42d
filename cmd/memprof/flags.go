package main

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/spell"
	"github.com/memprof/memprof/report/units"
)

// formatFlags are those of the verbs that print text, Markdown or JSON.
type formatFlags struct {
	Format string // "text", "markdown" or "json", once settled
	JSON   bool
}

func (f *formatFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Format, "format", "text", "text, markdown or json")
	flags.BoolVar(&f.JSON, "json", false, "print JSON, the same as --format json")
}

// settle works out the format. The error is of wrong usage.
func (f *formatFlags) settle() error {
	if f.JSON {
		f.Format = "json"
	}
	return oneOf("format", f.Format, "text", "markdown", "json")
}

// oneOf fails with the nearest choice if the value of a flag is none of the choices. The last ones
// are joined by "or": "want a, b or c".
func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return exit.Usagef("--%s %q: want %s%s", flag, value, spell.Alternatives(choices), spell.DidYouMean(value, choices...))
}

// sizeFlag is a flag in bytes, given as people write sizes.
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
