package main

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/memprof/memprof/report"
)

// terminal says whether w is a terminal: without one there are no colours and nothing that
// is drawn over.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// colourful says whether to colour what is printed on w (https://no-color.org).
func colourful(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal(w)
}

// width of the terminal w is, in columns; 0 without one.
func width(w io.Writer) int {
	if !terminal(w) {
		return 0
	}
	columns, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// textOptions are how a report looks on w.
func textOptions(w io.Writer) report.Options {
	return report.Options{Color: colourful(w), Width: width(w)}
}
