package export

import (
	"bytes"
	"encoding/csv"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// readCSV makes events of what CSV wrote, with contexts as texts.
func readCSV(t *testing.T, text []byte) (events []row) {
	t.Helper()
	records, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	assert.NoError(t, err)
	for _, r := range records[1:] {
		numbers := map[int]int64{}
		for _, at := range []int{1, 2, 4, 5, 6, 7, 8, 9, 11} {
			if numbers[at], err = strconv.ParseInt(r[at], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		events = append(events, row{r[0], numbers[1], numbers[2], r[3], numbers[4], numbers[5], numbers[6], numbers[7], numbers[8], numbers[9], r[10], numbers[11]})
	}
	return events
}

// row is an event in the texts and numbers of the dataset.
type row struct {
	Process                   string
	Seq, Time                 int64
	Kind                      string
	Device, Arena, Stream     int64
	Addr, Requested, Provided int64
	Context                   string
	Thread                    int64
}

// allRows are those that the trace package reads.
func allRows(t *testing.T, r *Recording) (rows []row) {
	t.Helper()
	for _, process := range r.Run.Processes {
		events, err := process.ReadAll()
		assert.NoError(t, err)
		for _, e := range events {
			rows = append(rows, row{
				process.Name, e.Seq, e.Time, e.Kind.String(), int64(e.Device), int64(e.Arena), e.Stream, e.Addr, e.Requested, e.Provided,
				process.Strings().Text(e.Context), int64(e.Thread),
			})
		}
	}
	return rows
}

func TestCSV(t *testing.T) {
	r := recorded(t)
	var out bytes.Buffer
	assert.NoError(t, CSV(&out, r))
	want := allRows(t, r)
	assert.Diff(t, want, readCSV(t, out.Bytes()), "rows")
	reporttest.Golden(t, "job.csv", out.Bytes())
}

// A spreadsheet computes nothing from a recording: what would begin a formula is text, numbers stay numbers.
func TestCSVFormulas(t *testing.T) {
	for text, want := range map[string]string{
		"=HYPERLINK(1)": "'=HYPERLINK(1)", "+1": "'+1", "-1": "'-1", "@SUM(A1,B1)": `"'@SUM(A1,B1)"`, "\t=1": "'\t=1", "\r=1": "\"'\r=1\"",
		"a=b": "a=b", "": "", "net.fc": "net.fc",
	} {
		assert.Equal(t, csvField(text), want, "%q", text)
	}
	run := recorded(t)
	run.Run.Processes[0].Name = "=1+1"
	var out bytes.Buffer
	assert.NoError(t, CSV(&out, run))
	line := strings.Split(out.String(), "\n")[1]
	assert.That(t, strings.HasPrefix(line, "'=1+1,0,") && strings.Contains(line, ",-1,"), "a process named =1+1, of events with numbers below 0: %s", line)
}

// refusing is a disk that is full after some bytes.
type refusing struct{ left int }

var errFull = errors.New("full")

func (w *refusing) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// What cannot be written is an error in every format, wherever it happens.
func TestFullDisk(t *testing.T) {
	r := recorded(t)
	formats := map[string]func(*refusing) error{
		"csv":      func(w *refusing) error { return CSV(w, r) },
		"pprof":    func(w *refusing) error { return Pprof(w, r, PprofOptions{At: AtPeak}) },
		"snapshot": func(w *refusing) error { return TorchSnapshot(w, r, r.Run.Processes[0]) },
	}
	for name, write := range formats {
		for _, left := range []int{0, 100} {
			err := write(&refusing{left})
			assert.That(t, errors.Is(err, errFull), "%s with room for %d bytes: %v", name, left, err)
		}
	}
}
