package collect_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/outfile"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// smallDisk is a disk with some bytes left, which grows when segments or ballast go.
type smallDisk struct {
	mu   sync.Mutex
	room int
}

func (d *smallDisk) create(dir *os.Root, name string) (dataset.PartFile, error) {
	f, err := outfile.Create(dir, name)
	return &smallFile{PartFile: f, disk: d}, err
}

func (d *smallDisk) add(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room += n
}

type smallFile struct {
	dataset.PartFile
	disk *smallDisk
}

func (f *smallFile) Write(b []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	n := min(len(b), f.disk.room)
	f.disk.room -= n
	n, err := f.PartFile.Write(b[:n])
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

// TestDiskStaysFull: the events stay in the spool, the error says up to where the trace
// goes, and recovery with room makes it whole.
func TestDiskStaysFull(t *testing.T) {
	const n = 90_000
	events, texts := tracetest.Training(n)
	rooms := []int{0, 3, 30_000, 75_000, 120_000, 150_000}
	if testing.Short() {
		rooms = rooms[2:4]
	}
	for _, room := range rooms {
		dir, spool := newRun(t)
		s := tracetest.NewSpool(t, spool, 4711, 0)
		fill(s, events, texts)
		disk := &smallDisk{room: room}
		opt := dataset.WriterOptions{PartEvents: 30_000, RowGroup: 10_000}
		opt.Create = disk.create
		c := newCollector(t, dir, opt)
		_, err := c.Poll()
		assert.Must(t, errors.Is(err, trace.ErrDiskFull) && strings.Contains(err.Error(), "memprof record --finish"),
			"room %d: error %v, want a full disk", room, err)
		assert.That(t, room < 120_000 || strings.Contains(err.Error(), "converted up to seq "), "room %d: error %q does not say up to where", room, err)
		if progress, err := c.Poll(); progress || err != nil {
			t.Errorf("room %d: poll after it: %v, %v", room, progress, err)
		}
		if _, err := c.Finish(); !errors.Is(err, trace.ErrDiskFull) {
			t.Errorf("room %d: finish: %v, want a full disk", room, err)
		}
		if _, err := collect.Recover(context.Background(), dir, false); err != nil {
			t.Fatalf("room %d: recover: %v", room, err)
		}
		p := tracetest.One(t, dir)
		tracetest.Same(t, p, events, texts)
	}
}

// TestBallastIsEnough: one full disk that the ballast makes up for is not noticed, except
// that a part ends early.
func TestBallastIsEnough(t *testing.T) {
	const n = 90_000
	events, texts := tracetest.Training(n)
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	fill(s, events, texts)
	disk := &smallDisk{room: 20_000}
	ballast := filepath.Join(dir, ".ballast."+tracetest.RunID)
	opt := dataset.WriterOptions{RowGroup: 10_000}
	opt.Create = func(dir *os.Root, name string) (dataset.PartFile, error) {
		f, err := disk.create(dir, name)
		return &ballastFile{PartFile: f, path: ballast, gone: func() { disk.add(8 << 20) }}, err
	}
	c := newCollector(t, dir, opt)
	must(t, c.Poll)
	must(t, c.Finish)
	p := tracetest.One(t, dir)
	assert.That(t, len(p.Parts) == 2 && p.Events == n, "%d events in %d parts, want %d in 2", p.Events, len(p.Parts), n)
	tracetest.Same(t, p, events, texts)
}

// ballastFile gives the room of the ballast to its disk once the ballast is removed.
type ballastFile struct {
	dataset.PartFile
	path string
	gone func()
}

func (f *ballastFile) Write(b []byte) (int, error) {
	if _, err := os.Stat(f.path); err != nil && f.gone != nil {
		f.gone()
		f.gone = nil
	}
	return f.PartFile.Write(b)
}
