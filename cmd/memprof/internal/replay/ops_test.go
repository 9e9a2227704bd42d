package replay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const mib = 1 << 20

func read(text string) ([]Op, error) {
	var out []Op
	r := NewReader(strings.NewReader(text), "test.ops")
	for {
		op, err := r.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, op)
	}
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []Op
	}{
		{"nothing", "", nil},
		{"one of each", "alloc a 1000\nfree a\ngc\n", []Op{{1, Alloc, "a", 1000}, {2, Free, "a", 0}, {3, GC, "", 0}}},
		{"no newline at the end", "gc\ngc", []Op{{1, GC, "", 0}, {2, GC, "", 0}}},
		{"CRLF", "alloc a 1\r\n\r\nfree a\r\n", []Op{{1, Alloc, "a", 1}, {3, Free, "a", 0}}},
		{"blanks and comments", "\n  # one\n\talloc\ta  2K # two\n#three\n", []Op{{3, Alloc, "a", 2048}}},
		{"a name with #", "free a#1\n", []Op{{1, Free, "a#1", 0}}},
		{"byte order mark", "\ufeffgc\n", []Op{{1, GC, "", 0}}},
		{"units", "alloc a 3K\nalloc b 3M\nalloc c 3G\nalloc d 3g\n",
			[]Op{{1, Alloc, "a", 3 << 10}, {2, Alloc, "b", 3 << 20}, {3, Alloc, "c", 3 << 30}, {4, Alloc, "d", 3 << 30}}},
		{"fractions", "alloc a 2.5M\nalloc b 0.3k\nalloc c 1.9999999999999999999999G\nalloc d 8589934591.75G\nalloc e 3.0K\n",
			[]Op{{1, Alloc, "a", 2621440}, {2, Alloc, "b", 307}, {3, Alloc, "c", 2<<30 - 1}, {4, Alloc, "d", 1<<63 - 1<<28}, {5, Alloc, "e", 3072}}},
		{"least and greatest", "alloc a 0\nalloc b 18446744073709551615\nalloc c 8589934591G\n",
			[]Op{{1, Alloc, "a", 0}, {2, Alloc, "b", 1<<64 - 1}, {3, Alloc, "c", 1<<63 - 1<<30}}},
		{"long comments", "gc #" + strings.Repeat("x", 3*maxLine) + "\n# " + strings.Repeat("x", maxLine) + "\ngc", []Op{{1, GC, "", 0}, {3, GC, "", 0}}},
	} {
		got, err := read(c.text)
		assert.That(t, err == nil, "%s: %v", c.name, err)
		assert.Diff(t, c.want, got, "%s", c.name)
	}
}

func TestReadErrors(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"alloc a -5", `size "-5" is negative: sizes are 0 or more`},
		{"alloc a 1.5", `size "1.5" needs a unit, like 1.5GiB or 1.5B`},
		{"alloc a 0x10", `size "0x10" has the unknown unit "x10": use KiB, MiB, GiB, TiB (or k, m, g, t), or KB, MB, GB, TB for powers of 1000`},
		{"alloc a big", `size "big" does not begin with a number: write it like 10GiB, 512m or 257B`},
		{"alloc a 18446744073709551616", `size "18446744073709551616" needs a unit, like 18446744073709551616GiB or 18446744073709551616B`},
		{"alloc a 17179869184G", `size "17179869184G" is too large: sizes end below 8 EiB`},
		{"alloc a", "an operation of 2 words: use `alloc NAME SIZE`"},
		{"alloc", "an operation of 1 word: use `alloc NAME SIZE`"},
		{"alloc a 5 6", "an operation of more than 3 words: use `alloc NAME SIZE`"},
		{"alloc a 5 K # twice", "an operation of more than 3 words: use `alloc NAME SIZE`"},
		{"free", "an operation of 1 word: use `free NAME`"},
		{"free a b", "an operation of 3 words: use `free NAME`"},
		{"gc a", "an operation of 2 words: use `gc`"},
		{"malloc a 5", "unknown operation \"malloc\": use `alloc NAME SIZE`, `free NAME`, `gc` or `iteration`"},
		{"ALLOC a 5", "unknown operation \"ALLOC\": use `alloc NAME SIZE`, `free NAME`, `gc` or `iteration`"},
		{"PAR1\x15\x00", "unknown operation \"PAR1\\x15\\x00\": use `alloc NAME SIZE`, `free NAME`, `gc` or `iteration`"},
		{"free a\xff", `name "a\xff" cannot be printed`},
		{"free a\x1b[31m", `name "a\x1b[31m" cannot be printed`},
		{"alloc " + strings.Repeat("x", maxLine) + " 5", "line is longer than 65536 bytes"},
	} {
		got, err := read("gc\n# fine\n" + c.line + "\ngc\n")
		var problem *Error
		assert.That(t, errors.As(err, &problem) && problem.Line == 3 && err.Error() == "test.ops:3: "+c.want,
			"%.40s: got %v, want test.ops:3: %s", c.line, err, c.want)
		assert.That(t, len(got) == 1, "%.40s: %d operations before it", c.line, len(got))
	}
}

func TestReadFails(t *testing.T) {
	broken := errors.New("broken disk")
	_, err := NewReader(iotest.ErrReader(broken), "test.ops").Read()
	assert.That(t, errors.Is(err, broken) && err.Error() == "reading test.ops: broken disk", "got %v", err)
}

func run(t *testing.T, text string) ([]Result, error) {
	t.Helper()
	a, err := bfc.New(bfc.Options{Limit: 8 * mib}, bfc.NewDevice(bfc.DeviceOptions{}))
	assert.NoError(t, err)
	var results []Result
	err = Run(a, NewReader(strings.NewReader(text), "test.ops"), func(r *Result) error {
		results = append(results, *r)
		return nil
	})
	return results, err
}

func TestRun(t *testing.T) {
	got, err := run(t, `
alloc a 1000
alloc b 3M
alloc none 0
alloc huge 18446744073709551615
free huge
alloc huge 2000   # a name that was refused, and one that was freed, can be used again
free b
free a
alloc a 5
free huge
free a
gc
gc
alloc a 1
`)
	assert.NoError(t, err)
	want := []Result{
		{Verb: Alloc, Name: "a", OK: true, Requested: 1000, Provided: 1024},
		{Verb: Alloc, Name: "b", OK: true, Region: 1, Requested: 3 * mib, Provided: 4 * mib},
		{Verb: Alloc, Name: "none"},
		{Verb: Alloc, Name: "huge", Requested: 1<<64 - 1},
		{Verb: Free, Name: "huge"},
		{Verb: Alloc, Name: "huge", OK: true, Offset: 1024, Requested: 2000, Provided: 2048},
		{Verb: Free, Name: "b", OK: true, Region: 1, Requested: 3 * mib, Provided: 4 * mib},
		{Verb: Free, Name: "a", OK: true, Requested: 1000, Provided: 1024},
		{Verb: Alloc, Name: "a", OK: true, Requested: 5, Provided: 256},
		{Verb: Free, Name: "huge", OK: true, Offset: 1024, Requested: 2000, Provided: 2048},
		{Verb: Free, Name: "a", OK: true, Requested: 5, Provided: 256},
		{Verb: GC, OK: true, Released: 6 * mib},
		{Verb: GC, OK: true},
		{Verb: Alloc, Name: "a", OK: true, Requested: 1, Provided: 256},
	}
	assert.Diff(t, want, got)
}

func TestRunErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"free a\n", `test.ops:1: free of "a", which was never allocated`},
		{"alloc a 1\nfree a\n\nfree a\n", `test.ops:4: free of "a", which was freed on line 2`},
		{"alloc a 0\nfree a\nfree a\n", `test.ops:3: free of "a", which was freed on line 2`},
		{"alloc a 1\nalloc a 1\n", `test.ops:2: name "a" is in use since line 1: free it first, or use another`},
		{"alloc a 1\nalloc b -5\n", `test.ops:2: size "-5" is negative: sizes are 0 or more`},
	} {
		results, err := run(t, c.text)
		assert.That(t, err != nil && err.Error() == c.want, "%q: got %v, want %s", c.text, err, c.want)
		assert.That(t, len(results) <= 2, "%q: %d results before the error", c.text, len(results))
	}
}

// TestRunForgets: of a million names freed, those freed last are known, and no memory is kept for the
// others.
func TestRunForgets(t *testing.T) {
	a, err := bfc.New(bfc.Options{Limit: 8 * mib}, bfc.NewDevice(bfc.DeviceOptions{}))
	assert.NoError(t, err)
	const pairs = 1_000_000
	read, write := io.Pipe()
	go func() {
		out := bufio.NewWriter(write)
		for i := range pairs {
			fmt.Fprintf(out, "alloc block%d 1000\nfree block%d\n", i, i)
		}
		fmt.Fprintf(out, "free block%d\n", 0)
		out.Flush()
		write.Close()
	}()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done := 0
	err = Run(a, NewReader(read, "test.ops"), func(*Result) error {
		if done++; done == 2*pairs {
			runtime.GC()
			runtime.ReadMemStats(&after)
		}
		return nil
	})
	want := `test.ops:2000001: free of "block0", which is not in use`
	assert.That(t, err != nil && err.Error() == want, "error %v, want %s", err, want)
	grew := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	assert.That(t, done == 2*pairs && grew <= 32*mib, "%d of %d operations done, %d bytes kept for names, want at most 32 MiB", done, 2*pairs, grew)
}

// No input makes reading fail in any other way than with an error of its line, and what is
// read can be run.
func FuzzRun(f *testing.F) {
	f.Add("alloc a 1000\nfree a\ngc\n")
	f.Add("alloc a 8M\r\nalloc b 18446744073709551615 # no\r\n\ufefffree b")
	f.Add("alloc a -5")
	f.Add("free \xff")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := run(t, text)
		var problem *Error
		assert.That(t, err == nil || errors.As(err, &problem) && problem.Line >= 1 && problem.Line <= strings.Count(text, "\n")+1, "%q: %v", text, err)
	})
}
