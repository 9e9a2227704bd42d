package dataset_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestTamperedTrace: each kind of tampering shows in the block it was made in, and no
// block before it.
func TestTamperedTrace(t *testing.T) {
	const n, at = 20_000, 9_000 // block 2: 8,192 to 12,287
	tests := []struct {
		name   string
		change func(rows []trace.Event) []trace.Event
	}{
		{"one event removed", func(r []trace.Event) []trace.Event { return append(r[:at:at], r[at+1:]...) }},
		{"size changed by a byte", func(r []trace.Event) []trace.Event { r[at].Requested++; return r }},
		{"address", func(r []trace.Event) []trace.Event { r[at].Addr ^= 1 << 40; return r }},
		{"time", func(r []trace.Event) []trace.Event { r[at].Time++; return r }},
		{"kind", func(r []trace.Event) []trace.Event { r[at].Kind = trace.KindLost; return r }},
		{"context", func(r []trace.Event) []trace.Event { r[at].Context ^= 1; return r }},
		{"thread", func(r []trace.Event) []trace.Event { r[at].Thread++; return r }},
		{"two swapped", func(r []trace.Event) []trace.Event { r[at], r[at+1] = r[at+1], r[at]; return r }},
		{"two swapped, seq mended", func(r []trace.Event) []trace.Event {
			r[at], r[at+1] = r[at+1], r[at]
			r[at].Seq, r[at+1].Seq = r[at+1].Seq, r[at].Seq
			return r
		}},
		{"one event twice", func(r []trace.Event) []trace.Event {
			return append(append(r[:at:at], r[at-1]), r[at:]...)
		}},
	}
	events, texts := tracetest.Training(n)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts})
			tracetest.Rewrite(t, filepath.Join(dir, "rank0-0000.parquet"), tt.change)
			p := tracetest.One(t, dir)
			got, want := tracetest.Rolling(t, p), p.Checksums()
			first := 0
			for first < len(want) && first < len(got) && got[first] == want[first] {
				first++
			}
			assert.Equal(t, first, 2, "first block that differs")
			assert.That(t, p.Recorded() == n, "recorded %d events, want %d", p.Recorded(), n)
		})
	}
	t.Run("cut", func(t *testing.T) {
		dir := t.TempDir()
		tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts})
		tracetest.Rewrite(t, filepath.Join(dir, "rank0-0000.parquet"), func(r []trace.Event) []trace.Event { return r[:8192] })
		p := tracetest.One(t, dir)
		if got, want := len(tracetest.Rolling(t, p)), 2; got != want || p.Events != 8192 || p.Recorded() != n {
			t.Errorf("%d checksums, %d events of %d recorded; want 2, 8192, %d", got, p.Events, p.Recorded(), n)
		}
	})
}

func TestOpenErrors(t *testing.T) {
	part := func(dir string, n int) string { return filepath.Join(dir, "rank0-000"+string(rune('0'+n))+".parquet") }
	write := func(t *testing.T, path, text string) {
		assert.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	tests := []struct {
		name string
		// damage changes a run of three parts in dir and says what to open.
		damage func(t *testing.T, dir string) string
		want   error
		says   string
	}{
		{"not Parquet", func(t *testing.T, dir string) string {
			write(t, part(dir, 1), "hello, I am a text file that somebody renamed\n")
			return dir
		}, trace.ErrNotParquet, "rank0-0001.parquet: not a Parquet file"},
		{"empty file", func(t *testing.T, dir string) string {
			write(t, part(dir, 1), "")
			return part(dir, 1)
		}, trace.ErrNotParquet, "rank0-0001.parquet"},
		{"truncated", func(t *testing.T, dir string) string {
			assert.NoError(t, os.Truncate(part(dir, 2), 1000))
			return dir
		}, trace.ErrTruncated, "rank0-0002.parquet: truncated"},
		{"footer length out of range", func(t *testing.T, dir string) string {
			write(t, part(dir, 2), "PAR1\xff\xff\xff\x7fPAR1")
			return dir
		}, trace.ErrTruncated, "rank0-0002.parquet"},
		{"footer of zeros", func(t *testing.T, dir string) string {
			write(t, part(dir, 2), "PAR1"+strings.Repeat("\x00", 64)+"\x40\x00\x00\x00PAR1")
			return dir
		}, nil, "rank0-0002.parquet"},
		{"newer schema", func(t *testing.T, dir string) string {
			b, err := os.ReadFile(part(dir, 0))
			assert.NoError(t, err)
			old, newer := []byte("memprof.schema_version\x18\x011"), []byte("memprof.schema_version\x18\x019")
			assert.Must(t, bytes.Count(b, old) == 1, "schema version not found in the footer")
			write(t, part(dir, 0), string(bytes.Replace(b, old, newer, 1)))
			return dir
		}, trace.ErrNewerSchema, "schema version 9, this memprof knows up to 1"},
		{"newer run.json", func(t *testing.T, dir string) string {
			write(t, filepath.Join(dir, "run.json"), `{"schema_version": 2}`)
			return dir
		}, trace.ErrNewerSchema, "run.json"},
		{"run.json cut", func(t *testing.T, dir string) string {
			write(t, filepath.Join(dir, "run.json"), `{"schema_ver`)
			return dir
		}, trace.ErrDamaged, "run.json"},
		{"Parquet of somebody else", func(t *testing.T, dir string) string {
			b, err := os.ReadFile(part(dir, 0))
			assert.NoError(t, err)
			write(t, part(dir, 0), string(bytes.ReplaceAll(b, []byte("memprof."), []byte("another."))))
			return dir
		}, trace.ErrNotTrace, "memprof.schema_version"},
		{"missing in the middle", func(t *testing.T, dir string) string {
			os.Remove(part(dir, 1))
			return dir
		}, trace.ErrMissingPart, "rank0-0001.parquet: a part of the trace is missing"},
		{"missing first", func(t *testing.T, dir string) string {
			os.Remove(part(dir, 0))
			return dir
		}, trace.ErrMissingPart, "rank0-0000.parquet"},
		{"missing last", func(t *testing.T, dir string) string {
			os.Remove(part(dir, 2))
			return dir
		}, trace.ErrMissingPart, "rank0-0002.parquet"},
		{"a part of another recording", func(t *testing.T, dir string) string {
			other := t.TempDir()
			events, texts := tracetest.Training(3000)
			tracetest.WriteRun(t, other, tracetest.Process{Events: events, Texts: texts, Options: dataset.WriterOptions{PartEvents: 900}})
			assert.NoError(t, os.Rename(part(other, 1), part(dir, 1)))
			return dir
		}, trace.ErrMissingPart, "rank0-0001.parquet starts at seq 900, but the part before it ends at 1000"},
		{"two runs mixed", func(t *testing.T, dir string) string {
			assert.NoError(t, dataset.WriteInfo(dir, &dataset.Info{ID: "feedfeedfeedfeed"}))
			return dir
		}, trace.ErrMixedRuns, "0123456789abcdef"},
		{"missing altogether", func(t *testing.T, dir string) string {
			for i := range 3 {
				os.Remove(part(dir, i))
			}
			assert.NoError(t, dataset.WriteInfo(dir, &dataset.Info{ID: tracetest.RunID, Processes: []string{"rank0", "rank1"}}))
			return dir
		}, trace.ErrMissingPart, "run.json lists rank0, rank1, and no .parquet part is there"},
		{"a job without a GPU", func(t *testing.T, dir string) string {
			for i := range 3 {
				os.Remove(part(dir, i))
			}
			assert.NoError(t, dataset.WriteInfo(dir, &dataset.Info{ID: tracetest.RunID}))
			return dir
		}, trace.ErrEmpty, "no process of it used a GPU); `memprof doctor -- COMMAND` lists what may be missing"},
		{"empty directory", func(t *testing.T, dir string) string { return t.TempDir() }, trace.ErrEmpty, "no .parquet part"},
		{"unfinished", func(t *testing.T, dir string) string {
			tracetest.NewSpool(t, filepath.Join(dir, "spool"), 4711, 0).Append(trace.Event{Kind: trace.KindAlloc}, "")
			return dir
		}, trace.ErrUnfinished, "memprof record --finish"},
		{"nothing there", func(t *testing.T, dir string) string { return filepath.Join(dir, "nothing") }, os.ErrNotExist, "nothing"},
	}
	events, texts := tracetest.Training(3000)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts, Options: dataset.WriterOptions{PartEvents: 1000}})
			p := tracetest.One(t, dir)
			assert.Must(t, len(p.Parts) == 3, "%d parts, want 3", len(p.Parts))
			_, err := dataset.Open(tt.damage(t, dir))
			assert.Must(t, err != nil && (tt.want == nil || errors.Is(err, tt.want)), "error %v, want %v", err, tt.want)
			assert.That(t, strings.Contains(err.Error(), tt.says), "error %q does not say %q", err, tt.says)
		})
	}
}

func TestReaderNamesDamagedPart(t *testing.T) {
	events, texts := tracetest.Training(2000)
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts, Options: dataset.WriterOptions{PartEvents: 1000}})
	path := filepath.Join(dir, "rank0-0001.parquet")
	b, err := os.ReadFile(path)
	assert.NoError(t, err)
	for i := 4; i < 400; i++ {
		b[i] = 0xff
	}
	assert.NoError(t, os.WriteFile(path, b, 0o644))
	_, err = tracetest.One(t, dir).ReadAll()
	assert.That(t, errors.Is(err, trace.ErrDamaged) && strings.Contains(err.Error(), "rank0-0001.parquet"),
		"error %v, want damage in rank0-0001.parquet", err)
}

// A time is damage that a process cannot have; marks of a thread that was stopped for a while are none. Parts are read from any
// event on, and restate at their beginning what is older. Event 1501 is a free, which may be late.
func TestTimes(t *testing.T) {
	for _, test := range []struct {
		change time.Duration // of event 1500
		want   string
	}{
		{-9 * time.Second, ""}, {364 * 24 * time.Hour, "event seq 1502 is at"}, {-11 * time.Second, "event seq 1500 is at"}, {367 * 24 * time.Hour, "event seq 1500 is at"},
		{math.MaxInt64 - time.Hour, "event seq 1500 is at"}, {math.MinInt64 + time.Hour, "event seq 1500 is at"},
	} {
		events, texts := tracetest.Training(2000)
		for i := range events {
			events[i].Time += int64(time.Minute)
		}
		events[1500].Time = (events[1500].Time + int64(test.change)) &^ (dataset.TimeStep - 1)
		dir := t.TempDir()
		tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts, Options: dataset.WriterOptions{PartEvents: 1000}})
		p := tracetest.One(t, dir)
		for _, from := range []int64{0, 1000} {
			reader, _, err := p.NewReaderBetween(from, 1999)
			assert.NoError(t, err)
			for err == nil {
				_, err = reader.Next()
			}
			reader.Close()
			switch {
			case test.want == "" && err != io.EOF:
				t.Errorf("%v from event %d: %v", test.change, from, err)
			case test.want != "" && (!errors.Is(err, trace.ErrDamaged) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v from event %d: %v, want %q", test.change, from, err, test.want)
			}
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	w := dataset.NewWriter(t.TempDir(), dataset.ProcessMeta{Name: "rank0"}, dataset.WriterOptions{})
	err := w.Append(&trace.Event{Seq: 1, Kind: trace.KindAlloc})
	assert.That(t, err != nil, "a gap in seq was taken")
	if err := w.Append(&trace.Event{Kind: trace.KindAlloc, Context: 1}); err == nil {
		t.Error("an unknown context was taken")
	}
	w = dataset.NewWriter(filepath.Join(t.TempDir(), "missing"), dataset.ProcessMeta{Name: "rank0"}, dataset.WriterOptions{})
	if err := w.Append(&trace.Event{Kind: trace.KindAlloc}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that the directory does not exist", err)
	}
}

func TestInfo(t *testing.T) {
	dir := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "run.json"), []byte(`{"schema_version":1,"id":"ab","colour":"green","gpus":[{"index":0,"name":"H200","memory":5,"extra":1}]}`), 0o644))
	info, err := dataset.ReadInfo(dir)
	assert.Must(t, err == nil && info.ID == "ab" && len(info.GPUs) == 1 && info.GPUs[0].Memory == 5, "info %+v, error %v", info, err)
	assert.NoError(t, dataset.WriteInfo(dir, info))
	entries, _ := os.ReadDir(dir)
	assert.That(t, len(entries) == 1, "%d files in the directory, want run.json only", len(entries))
	a, b := dataset.NewRunID(), dataset.NewRunID()
	assert.That(t, len(a) == 16 && a != b, "run ids %q and %q", a, b)
}
