package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/report"
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

// printJSON is how every verb prints JSON: indented, and with < and > as they are.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(report.PlainJSON(w))
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// formatSize is report.FormatSize.
func formatSize(bytes int64) string { return report.FormatSize(bytes) }

// counted is "1 event", "2,000 events", "3 processes".
func counted(n int64, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return groupDigits(n) + " " + noun
}

// groupDigits writes a count, which is not negative, with a comma after every third digit.
func groupDigits(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", groupDigits(n/1000), n%1000)
}

// shellQuote writes a word so that a shell takes it as it is.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./+:@%,=", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
