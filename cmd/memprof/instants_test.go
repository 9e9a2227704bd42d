package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// failingJob is a job on a device of 1 GiB: its peak comes first, then a request fails, and it goes on with less.
func failingJob(t *testing.T) *modeltest.Recorder {
	t.Helper()
	r := modeltest.New()
	a, err := r.NewArena(0, bfc.Options{Limit: 1 << 30}, bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 << 20, Base: 1 << 44}), nil)
	assert.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	var live []uint64
	alloc := func(size uint64, of string) (ok bool) {
		addr, ok := a.Alloc(size, "module="+of)
		if ok {
			live = append(live, addr)
		}
		return ok
	}
	free := func(n int) {
		for range n {
			i := random.IntN(len(live))
			a.Free(live[i], false)
			live = append(live[:i], live[i+1:]...)
		}
	}
	for i := range 80 {
		assert.Must(t, alloc(8<<20+random.Uint64N(4<<20), fmt.Sprint("layer.", i%8)), "no memory for the peak")
	}
	free(20)
	assert.Must(t, !alloc(1<<30, "head"), "a request of 1 GiB did not fail")
	free(30)
	for range 10 {
		alloc(1<<20, "tail")
		r.Mark(0)
	}
	return r
}

// exported is what a format says of an instant; -1 where it does not say.
type exported struct{ requested, reserved int64 }

// exportReaders read a file of each format that has the instant alone. Others have all events up to it.
var exportReaders = map[string]func(t *testing.T, file string) exported{
	"pprof": func(t *testing.T, file string) exported {
		p, err := profile.ParseData(readAll(t, file))
		assert.NoError(t, err)
		e := exported{0, -1}
		for _, s := range p.Sample {
			e.requested += s.Value[1]
		}
		return e
	},
	"torch-snapshot": func(t *testing.T, file string) exported {
		const program = `import pickle, sys
segments = pickle.load(open(sys.argv[1], 'rb'))['segments']
print(sum(b['requested_size'] for s in segments for b in s['blocks'] if b['state'] == 'active_allocated'), sum(s['total_size'] for s in segments))`
		out, err := exec.Command("python3", "-c", program, file).CombinedOutput()
		assert.Must(t, err == nil, "%v: %s", err, out)
		e := exported{}
		if _, err := fmt.Sscan(string(out), &e.requested, &e.reserved); err != nil {
			t.Fatal(err)
		}
		return e
	},
}

func readAll(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	assert.NoError(t, err)
	return text
}

// TestExportInstants: each format, at the failure, the peak, the end and an event, has the bytes of that instant, and is the
// export of a recording that ends there.
func TestExportInstants(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here to read pickles with")
	}
	r := failingJob(t)
	var texts []string
	for i := range r.Strings.Len() {
		texts = append(texts, r.Strings.Text(int32(i)))
	}
	whole := t.TempDir()
	write := func(dir string, events []trace.Event) {
		tracetest.WriteRun(t, dir, tracetest.Process{Meta: dataset.ProcessMeta{Name: "pid7", PID: 7, Rank: -1}, Events: events, Texts: texts})
	}
	write(whole, r.Events)
	// What each instant has, by the events themselves.
	at, last, live := map[string]exported{}, map[string]int64{}, trace.NewLive()
	for i := range r.Events {
		e := &r.Events[i]
		live.Add(e)
		now := exported{live.Totals().Requested, live.Totals().Reserved}
		is := func(instant string) { at[instant], last[instant] = now, int64(i) }
		if now.reserved > at["peak"].reserved || now.reserved == at["peak"].reserved && now.requested > at["peak"].requested {
			is("peak")
		}
		if e.Kind == trace.KindOOM {
			is("oom")
		}
		if i == 40 {
			is("40")
		}
		is("end")
	}
	for _, format := range exportFormats() {
		for _, instant := range []string{"oom", "peak", "end", "40"} {
			t.Run(format.name+" at "+instant, func(t *testing.T) {
				dir, shorter := t.TempDir(), t.TempDir()
				file, same := filepath.Join(dir, "at"), filepath.Join(dir, "same")
				memprofIn(t, exit.Fine, "export", format.name, whole, "--at", instant, "-o", file)
				write(shorter, r.Events[:last[instant]+1])
				memprofIn(t, exit.Fine, "export", format.name, shorter, "--at", "end", "-o", same)
				if read := exportReaders[format.name]; read != nil {
					got, want := read(t, file), at[instant]
					if got.reserved < 0 {
						want.reserved = -1
					}
					assert.Equal(t, got, want, "requested and reserved bytes")
				}
				if format.name == "pprof" { // whose comments name the instant
					p, err := profile.ParseData(readAll(t, file))
					assert.NoError(t, err)
					says := map[string]string{"oom": "at the first request of each device that failed", "peak": "at the peak of each device", "end": "after the last event", "40": "after event 40"}[instant]
					assert.That(t, strings.Contains(p.Comments[0], says), "the profile is of %q, want %q", p.Comments[0], says)
				} else if !bytes.Equal(readAll(t, file), readAll(t, same)) {
					t.Errorf("is not the export of a recording that ends after event %d", last[instant])
				}
			})
		}
	}
	for _, instant := range []string{"oom", "4711"} {
		dir := t.TempDir()
		write(dir, r.Events[:41])
		for _, format := range exportFormats() {
			memprofIn(t, exit.Usage, "export", format.name, dir, "--at", instant, "-o", filepath.Join(dir, "none"))
			_, err := os.Stat(filepath.Join(dir, "none"))
			assert.That(t, err != nil, "%s wrote a file at %s, where nothing is", format.name, instant)
		}
	}
}
