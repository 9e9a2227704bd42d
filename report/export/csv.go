package export

import (
	"io"
	"strconv"
	"strings"

	"github.com/memprof/memprof/trace"
)

const csvHeader = "process,seq,time_ns,kind,device,arena,stream,addr,requested,provided,context,thread\n"

// CSV writes the events of all processes as RFC 4180, but with \n as the line end: a header, then one event a
// line. Numbers are decimal, addresses too. CSV puts a ' in front of a text that a spreadsheet would take for
// a formula.
func CSV(w io.Writer, r *Recording) error {
	out := buffered(w)
	out.WriteString(csvHeader)
	var line []byte
	for _, process := range r.Run.Processes {
		name, text := csvField(process.Name), process.Strings()
		err := process.Each(func(e *trace.Event) error {
			line = append(append(line[:0], name...), ',')
			line = appendNumbers(line, e.Seq, e.Time)
			line = append(append(line, e.Kind.String()...), ',')
			line = appendNumbers(line, int64(e.Device), int64(e.Arena), e.Stream, e.Addr, e.Requested, e.Provided)
			line = append(append(line, csvField(text.Text(e.Context))...), ',')
			line = strconv.AppendInt(line, int64(e.Thread), 10)
			_, err := out.Write(append(line, '\n'))
			return err
		})
		if err != nil {
			return err
		}
	}
	return out.Flush()
}

// appendNumbers appends numbers with a comma after each.
func appendNumbers(line []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		line = append(strconv.AppendInt(line, n, 10), ',')
	}
	return line
}

// csvField quotes a text if needed. Spreadsheets evaluate a text that begins with = + - @, a tab or a carriage
// return, unless it has a ' in front.
func csvField(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		text = "'" + text
	}
	if !strings.ContainsAny(text, ",\"\r\n") {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
}
