package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/memprof/memprof/report"
)

// complain prints what is wrong, or odd, on stderr, behind "memprof:". What it says may come from a
// recording, a gate file, a baseline or the command line: this is where all of it is cleaned.
func complain(stderr io.Writer, text any) {
	fmt.Fprintln(stderr, "memprof:", report.PlainLines(fmt.Sprint(text)))
}

// remark prints one line of what is odd on stderr, such as a warning, after what it is.
func remark(stderr io.Writer, what, text string) {
	fmt.Fprintf(stderr, "memprof: %s: %s\n", what, report.PlainText(text))
}

// printLine prints one line of results, cleaned as a whole.
func printLine(stdout io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintln(stdout, report.PlainText(fmt.Sprintf(format, args...)))
	return err
}

// plainWriter cleans text line by line on its way to a terminal; flush writes a last line without
// an end. Texts in the formats of other tools pass it, which a file or a pipe gets as they are.
type plainWriter struct {
	w    io.Writer
	left []byte // a line that has no end so far
}

func (p *plainWriter) Write(text []byte) (int, error) {
	p.left = append(p.left, text...)
	end := bytes.LastIndexByte(p.left, '\n') + 1
	if end == 0 {
		return len(text), nil
	}
	var out bytes.Buffer
	for line := range bytes.Lines(p.left[:end]) {
		out.WriteString(report.PlainText(string(line[:len(line)-1])) + "\n")
	}
	p.left = append(p.left[:0], p.left[end:]...)
	if _, err := p.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (p *plainWriter) flush() error {
	_, err := io.WriteString(p.w, report.PlainText(string(p.left)))
	p.left = nil
	return err
}
