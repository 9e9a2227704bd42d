// Package screen prints: results on stdout, everything else on stderr, cleaned of what a recording could
// put there to steer a terminal, and on a terminal with colors, a progress bar and a live line.
package screen

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/memprof/memprof/report/layout"
)

// Terminal says whether w is a terminal: elsewhere there are no colors, and nothing is drawn over.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Colored says whether to color what is printed on w (https://no-color.org).
func Colored(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Terminal(w)
}

// Width returns the columns of the terminal w; 0 where w is none.
func Width(w io.Writer) int {
	if !Terminal(w) {
		return 0
	}
	columns, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// Options are how a report is printed on w.
func Options(w io.Writer) layout.Options {
	return layout.Options{Color: Colored(w), Width: Width(w)}
}

// Cut shortens text to so many columns; 0 columns keep all of it.
func Cut(text string, columns int) string {
	runes := []rune(text)
	if columns <= 0 || len(runes) <= columns {
		return text
	}
	return string(runes[:columns])
}
