package torchalloc

import (
	"bufio"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

var twinFile = flag.String("twin", "", "a file of samples/jobs/allocator_twin.py to hold the model against")

// TestTwin feeds the model with operations that torch's own allocator was given on an H200 and
// demands its address for every block and its sums behind every operation.
func TestTwin(t *testing.T) {
	files, err := filepath.Glob("testdata/twin-*.txt.gz")
	assert.NoError(t, err)
	if *twinFile != "" {
		files = []string{*twinFile}
	}
	assert.Must(t, len(files) != 0, "no files of torch's answers")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			assert.NoError(t, err)
			defer f.Close()
			var in io.Reader = f
			if strings.HasSuffix(file, ".gz") {
				if in, err = gzip.NewReader(f); err != nil {
					t.Fatal(err)
				}
			}
			count, err := followTwin(in)
			assert.NoError(t, err)
			t.Logf("%d operations agree", count)
		})
	}
}

// torchDevice has the addresses that torch got.
type torchDevice struct{ testCard }

func (d *torchDevice) Alloc(bytes uint64) (uint64, bool)   { return d.next, d.take(bytes) }
func (d *torchDevice) Reserve(bytes uint64) (uint64, bool) { return d.next, true }

type twin struct {
	a      *Allocator
	device *torchDevice
	live   map[uint64]*Block
	held   map[uint64]bool
	// waits are the streams that were held when a pending block was freed.
	waits  map[*Block][]uint64
	shared map[*Block][]uint64
	asked  int // operations, as the file says; 0: it does not
}

func followTwin(in io.Reader) (count int, err error) {
	lines := bufio.NewScanner(in)
	lines.Scan()
	w, err := newTwin(lines.Text())
	if err != nil {
		return 0, err
	}
	for lines.Scan() {
		count++
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		var n []uint64
		for _, word := range strings.Fields(rest) {
			number, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("line %d: %w", count+1, err)
			}
			n = append(n, number)
		}
		if len(n) < 4 {
			return 0, fmt.Errorf("line %d is cut off", count+1)
		}
		if err := w.step(kind, n[:len(n)-4]); err != nil {
			return 0, fmt.Errorf("line %d, %s: %w", count+1, lines.Text(), err)
		}
		s := w.a.Stats()
		if got := []uint64{s.Reserved.Now, s.Active.Now, s.Allocated.Now, s.Requested.Now}; !slices.Equal(got, n[len(n)-4:]) {
			return 0, fmt.Errorf("line %d, %s: reserved, active, allocated, requested are %d", count+1, lines.Text(), got)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	if w.asked > 0 && count != w.asked {
		return 0, fmt.Errorf("%d operations, where %d were asked for: the file is cut off", count, w.asked)
	}
	return count, nil
}

func newTwin(header string) (*twin, error) {
	before, conf, _ := strings.Cut(header, " conf=") // which may have spaces
	fields := map[string]string{}
	for _, field := range strings.Fields(before) {
		key, value, _ := strings.Cut(field, "=")
		fields[key] = value
	}
	version, err := ParseVersion(fields["torch"])
	if err != nil {
		return nil, err
	}
	settings, err := ParseSettings(conf, version)
	if err != nil {
		return nil, err
	}
	total, err := strconv.ParseUint(fields["total"], 10, 64)
	if err != nil {
		return nil, err
	}
	fraction, err := strconv.ParseFloat(fields["fraction"], 64)
	if err != nil {
		return nil, err
	}
	asked := 0
	if text, said := fields["operations"]; said {
		if asked, err = strconv.Atoi(text); err != nil {
			return nil, err
		}
	}
	w := &twin{asked: asked, device: &torchDevice{testCard{size: total}}, live: map[uint64]*Block{}, held: map[uint64]bool{}, waits: map[*Block][]uint64{}, shared: map[*Block][]uint64{}}
	w.a = NewAllocator(AllocatorOptions{Settings: settings, Version: version, Total: total, Fraction: fraction}, w.device)
	return w, nil
}

func (w *twin) step(kind string, n []uint64) error {
	switch kind {
	case "a":
		w.events()
		w.device.next = n[3]
		b, err := w.a.Malloc(n[1], n[2])
		if err != nil {
			return err
		}
		if b.Addr() != n[3] {
			return fmt.Errorf("the block is at %d", b.Addr())
		}
		w.live[n[0]] = b
	case "o":
		w.events()
		if _, err := w.a.Malloc(n[0], n[1]); err == nil {
			return fmt.Errorf("the model serves it")
		}
	case "u":
		b := w.live[n[0]]
		w.a.RecordStream(b, n[1])
		if n[1] != b.Stream() {
			w.shared[b] = append(w.shared[b], n[1])
		}
	case "f":
		b := w.live[n[0]]
		delete(w.live, n[0])
		if w.a.Free(b) {
			w.waits[b] = slices.DeleteFunc(w.shared[b], func(s uint64) bool { return !w.held[s] })
		}
		delete(w.shared, b)
	case "h":
		w.held[n[0]] = true
	case "s":
		w.held = map[uint64]bool{}
		w.waits = map[*Block][]uint64{}
	case "e":
		return w.a.EmptyCache()
	case "n":
		w.a.UsePool(PoolID{1, n[0]})
	case "d":
		if err := w.a.ReleasePool(PoolID{1, n[0]}); err != nil {
			return err
		}
		w.a.EmptyPool(PoolID{1, n[0]})
	case "b":
		w.a.BeginPool(PoolID{1, n[0]}, func(uint64) bool { return true })
	case "c":
		if err := w.a.EndPool(PoolID{1, n[0]}); err != nil {
			return err
		}
		return w.a.ReleasePool(PoolID{1, n[0]})
	default:
		return fmt.Errorf("unknown operation")
	}
	return nil
}

// events completes what waits for no stream that is held, as torch does before it serves a
// request outside of scopes.
func (w *twin) events() {
	if len(w.a.scopes) > 0 {
		return
	}
	w.a.freeDeferred()
	for _, b := range w.a.Pending() {
		if len(w.waits[b]) == 0 {
			delete(w.waits, b)
			w.a.Complete(b)
		}
	}
}
