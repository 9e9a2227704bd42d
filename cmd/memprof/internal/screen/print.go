package screen

import (
	"bytes"
	"fmt"
	"io"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

// Complain prints on stderr what is wrong, or odd, after "memprof:". The text may come from a recording,
// a gate file, a baseline or the command line, and is cleaned here.
func Complain(stderr io.Writer, text any) {
	fmt.Fprintln(stderr, "memprof:", plain.Lines(fmt.Sprint(text)))
}

// Remark prints one line on stderr after what it is: a warning, say.
func Remark(stderr io.Writer, what, text string) {
	fmt.Fprintf(stderr, "memprof: %s: %s\n", what, plain.Text(text))
}

// End prints err, if it has a message, and returns the exit code that it stands for.
func End(stderr io.Writer, err error) int {
	code, message := exit.Code(err)
	if message {
		Complain(stderr, err)
	}
	return code
}

// PrintLine prints one line of results, cleaned as a whole.
func PrintLine(stdout io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintln(stdout, plain.Text(fmt.Sprintf(format, args...)))
	return err
}

// JSON prints a value as every verb does: indented, with < and > as they are.
func JSON(w io.Writer, value any) error {
	return plain.WriteJSON(w, value)
}

// PlainWriter cleans text line by line on its way to a terminal. Texts in the formats of other tools go
// through it there; a file or a pipe gets them as they are.
type PlainWriter struct {
	W    io.Writer
	left []byte // the line that has no end so far
}

func (p *PlainWriter) Write(text []byte) (int, error) {
	p.left = append(p.left, text...)
	end := bytes.LastIndexByte(p.left, '\n') + 1
	if end == 0 {
		return len(text), nil
	}
	var out bytes.Buffer
	for line := range bytes.Lines(p.left[:end]) {
		out.WriteString(plain.Text(string(line[:len(line)-1])) + "\n")
	}
	p.left = append(p.left[:0], p.left[end:]...)
	if _, err := p.W.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Flush writes a last line without an end.
func (p *PlainWriter) Flush() error {
	_, err := io.WriteString(p.W, plain.Text(string(p.left)))
	p.left = nil
	return err
}
