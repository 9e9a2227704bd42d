package dataset_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// What reading a small part may take, whatever its bytes say.
const (
	hostileTime  = 2 * time.Minute // milliseconds, unless it is for ever
	hostileBytes = 64 << 20
)

// bounded reads the part at path and demands that it ends, in bounded time and memory.
func bounded(t *testing.T, path, what string) (events int, err error) {
	t.Helper()
	before := allocated()
	done := make(chan struct{})
	go func() {
		defer close(done)
		events, err = count(path)
	}()
	select {
	case <-done:
	case <-time.After(hostileTime):
		t.Fatalf("%s: still being read after %v", what, hostileTime)
	}
	took := allocated() - before
	assert.That(t, took <= hostileBytes, "%s: %d MiB were allocated, error %v", what, took>>20, err)
	return events, err
}

func count(path string) (events int, err error) {
	run, err := dataset.Open(path)
	if err != nil {
		return 0, err
	}
	r, err := run.Processes[0].NewReader()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events += b.Len()
	}
}

func allocated() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// smallPart writes a part of n events and gives its path and bytes.
func smallPart(t testing.TB, n int) (path string, whole []byte) {
	t.Helper()
	events, texts := tracetest.Training(n)
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts, Options: dataset.WriterOptions{RowGroup: n/2 + 1}})
	path = filepath.Join(dir, "rank0-0000.parquet")
	whole, err := os.ReadFile(path)
	assert.NoError(t, err)
	return path, whole
}

func overwrite(t testing.TB, path string, text []byte) {
	t.Helper()
	assert.NoError(t, os.WriteFile(path, text, 0o644))
}

// TestUnwrittenEncoding: one flipped bit makes dictionary indices of a recording BYTE_STREAM_SPLIT,
// which the Parquet library reads zero values of, for ever.
func TestUnwrittenEncoding(t *testing.T) {
	whole, err := os.ReadFile("../../samples/resnet50/pid9762-0000.parquet")
	assert.NoError(t, err)
	path := filepath.Join(t.TempDir(), "rank0-0000.parquet")
	overwrite(t, path, whole)
	if n, err := bounded(t, path, "as recorded"); err != nil || n != 32107 {
		t.Fatalf("%d events, error %v; want 32,107", n, err)
	}
	const at = 114562
	assert.Must(t, whole[at] == 0x10, "byte %d of the sample is %#x, not the encoding 8 of a page", at, whole[at])
	whole[at] = 0x12
	overwrite(t, path, whole)
	_, err = bounded(t, path, "encoding 9")
	if !errors.Is(err, trace.ErrDamaged) || !strings.Contains(err.Error(), "column thread: damaged page: thread in encoding BYTE_STREAM_SPLIT") {
		t.Errorf("error %v, want one that names the encoding", err)
	}
}

// all says that everything is tried, as make campaign wants it.
var all = os.Getenv("MEMPROF_TEST_ALL") != ""

// hostileNumbers are what a number in a file may be changed to.
var hostileNumbers = []int64{-1, 0, 1, 1 << 14, 1<<31 - 1, 1 << 40, 1<<63 - 1}

// TestFooterNumbers: whatever number of the footer is changed, to whatever value, the part is
// read or refused in bounded time and memory. Counts of the schema and sizes of column chunks
// are not believed.
func TestFooterNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of parts are read, by one goroutine")
	}
	path, whole := smallPart(t, 300)
	before, footer, err := tracetest.Footer(whole)
	assert.NoError(t, err)
	numbers, size, err := tracetest.Numbers(footer)
	assert.Must(t, err == nil && size == len(footer), "%d of the footer's %d bytes, error %v", size, len(footer), err)
	refused := map[string]error{}
	for _, n := range numbers {
		for _, value := range hostileNumbers {
			overwrite(t, path, tracetest.Sealed(before, n.With(footer, value)))
			what := fmt.Sprintf("footer%s = %d", n.Path, value)
			_, refused[what] = bounded(t, path, what)
		}
	}
	for what, says := range map[string]string{
		"footer/2/0/5 = 2147483647":          "not a part of a memprof trace (its schema has 12 elements, 2147483647 of them in the root",
		"footer/4/0/1/2/3/7 = 1099511627776": "damaged (row group 0: column 2: 1099511627776 bytes at ",
		"footer/4/1/3 = 2147483647":          "damaged (row group 1: 2147483647 rows, not 0 to 4194304)",
		"footer/4/1/3 = 1":                   "damaged (row group 1: column seq has 149 values in 1 rows)",
		"footer/4 = 2147483647":              "damaged (its metadata is cut or malformed)",
	} {
		err := refused[what]
		assert.That(t, err != nil && strings.Contains(err.Error(), says), "%s: error %v, want %q", what, err, says)
	}
}

// TestPageNumbers is TestFooterNumbers for the headers of pages.
func TestPageNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of parts are read, by one goroutine")
	}
	path, whole := smallPart(t, 300)
	before, footer, err := tracetest.Footer(whole)
	assert.NoError(t, err)
	headers, err := tracetest.PageHeaders(before)
	assert.Must(t, err == nil && len(headers) >= 22, "%d page headers in two row groups of 11 columns, error %v", len(headers), err)
	if !all {
		headers = headers[:len(headers)/2] // the second row group has the same
	}
	for _, at := range headers {
		numbers, size, err := tracetest.Numbers(before[at:])
		assert.NoError(t, err)
		header := before[at : at+size]
		for _, n := range numbers {
			for value := range int64(12) {
				tryPage(t, path, before, footer, at, header, n, value)
			}
			for _, value := range hostileNumbers {
				tryPage(t, path, before, footer, at, header, n, value)
			}
		}
	}
}

// tryPage reads a part with another header of the same length, so that nothing behind it moves.
func tryPage(t *testing.T, path string, before, footer []byte, at int, header []byte, n tracetest.Number, value int64) {
	t.Helper()
	changed := n.With(header, value)
	if len(changed) > len(header) { // the page's first bytes give way, which is damage as well
		changed = changed[:min(len(changed), len(header)+10)]
	}
	part := bytes.Clone(before)
	copy(part[at:], changed)
	overwrite(t, path, tracetest.Sealed(part, footer))
	_, _ = bounded(t, path, fmt.Sprintf("page at %d, %s = %d", at, n.Path, value))
}

// TestFlippedBits: of parts that differ in one bit, none is read for ever, or in more memory than
// bounded allows. Some bits are tried, so that all eight of a byte are tried somewhere.
func TestFlippedBits(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of parts are read")
	}
	path, whole := smallPart(t, 200)
	failed, tried, step := 0, 0, 61
	if all {
		step = 7
	}
	for bit := 0; bit < 8*len(whole); bit += step {
		tried++
		whole[bit/8] ^= 1 << (bit % 8)
		overwrite(t, path, whole)
		if _, err := bounded(t, path, fmt.Sprintf("bit %d", bit)); err != nil {
			failed++
		}
		whole[bit/8] ^= 1 << (bit % 8)
	}
	assert.That(t, failed >= tried/2, "%d of %d flips were refused, want more than half", failed, tried)
}
