package rmmlog

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/btree"

	"github.com/memprof/memprof/trace"
)

// Format names the format in run.json and on the command line.
const Format = "rmm-csv"

// Process describes the process that Import wrote for one file.
type Process struct {
	Name    string // of the recording's process
	File    string
	Entries int64 // rows
	Blocks  int64 // that existed before the first row
	Bytes   int64 // in them
	Odd     int64 // rows that contradict others, and were left out
}

// ErrEmpty is the error of a log without rows.
var ErrEmpty = errors.New("the log has no rows: rmm.enable_logging() has to be called before what is to be seen")

// granule is what RMM rounds sizes up to.
const granule = 256

// mostLive bounds the blocks of a log over what any job has.
const mostLive = 4 << 20

// Import writes the logs as one recording into dir, which exists. Several files are ranks in their order.
// Errors name the file and the line; no part is left after one.
func Import(dir string, files []string, version string) (all []Process, err error) {
	info := &trace.Info{
		ID: trace.NewRunID(), Version: version, Options: map[string]string{"import": Format},
		Command: append([]string{"memprof", "import", Format}, files...),
	}
	var writers []*trace.Writer
	defer func() {
		if err == nil {
			return
		}
		for _, w := range writers {
			w.Abandon()
			for _, part := range w.Parts() {
				err = errors.Join(err, os.Remove(part.Path))
			}
		}
	}()
	for rank, path := range files {
		meta := trace.ProcessMeta{RunID: info.ID, Name: "gpu0", Rank: -1, LocalRank: -1, WorldSize: -1, Frameworks: "rmm"}
		if len(files) > 1 {
			meta.Name, meta.Rank, meta.WorldSize = "rank"+strconv.Itoa(rank), rank, len(files)
		}
		l := &log{w: trace.NewWriter(dir, meta, trace.WriterOptions{NoSync: true}), arenas: map[uint64]int32{}, threads: map[uint64]int32{}}
		writers = append(writers, l.w)
		p, imported, err := l.write(path)
		if err != nil {
			return nil, err
		}
		p.Name, imported.Process = meta.Name, meta.Name
		all, info.Imported = append(all, p), append(info.Imported, imported)
	}
	return all, trace.WriteInfo(dir, info)
}

// log writes the events of one file.
type log struct {
	w       *trace.Writer
	arenas  map[uint64]int32 // by stream
	threads map[uint64]int32
	live    btree.Map[uint64, block]
	now     int64 // ns since the first row
	day     int64 // ns of the days before that of the newest row
	last    int64 // time of day of the newest row, ns
	first   int64 // of the first row; -1 before it
	odd     int64
}

type block struct {
	size, stream uint64
	arena        int32
}

// provided is the size of the block that serves n bytes.
func provided(n uint64) uint64 { return (max(n, 1) + granule - 1) / granule * granule }

// opening returns the blocks that are freed without a begin, by address, and how many rows there are.
func opening(path string) (blocks []row, rows int64, err error) {
	live := map[uint64]bool{}
	err = eachRow(path, func(r *row) error {
		rows++
		switch r.action {
		case allocate:
			live[r.addr] = true
		case free:
			if !live[r.addr] && r.addr != 0 {
				if _, begun := live[r.addr]; !begun { // else it was freed twice
					blocks = append(blocks, *r)
				}
			}
			live[r.addr] = false
		}
		if len(live) > mostLive {
			return fmt.Errorf("more than %d addresses", mostLive)
		}
		return nil
	})
	slices.SortFunc(blocks, func(a, b row) int { return cmp.Compare(a.addr, b.addr) })
	return blocks, rows, err
}

func (l *log) write(path string) (p Process, imported trace.Imported, err error) {
	before, rows, err := opening(path)
	if err != nil {
		return p, imported, err
	}
	if rows == 0 {
		return p, imported, fmt.Errorf("%s: %w", path, ErrEmpty)
	}
	l.first = -1
	for i := range before {
		r := &before[i]
		if l.overlaps(r) {
			continue // its free will be odd
		}
		p.Blocks++
		p.Bytes += int64(provided(r.size))
		if err := l.begin(r); err != nil {
			return p, imported, err
		}
	}
	imported.Opening = l.w.NextSeq()
	if err := eachRow(path, l.row); err != nil {
		return p, imported, err
	}
	p.File, p.Entries, p.Odd = path, rows, l.odd
	imported = trace.Imported{
		Format: Format, Opening: imported.Opening, Exact: imported.Opening, Blocks: p.Blocks, Reserved: p.Bytes, Odd: p.Odd, TimeOfDay: l.first,
	}
	return p, imported, l.w.Finish(trace.Ending{State: trace.StateClosed})
}

// row writes the events of a row.
func (l *log) row(r *row) error {
	if l.first < 0 {
		l.first, l.last = r.time, r.time
	}
	if r.time < l.last-int64(12*time.Hour) {
		l.day += int64(24 * time.Hour)
	}
	l.last = r.time
	l.now = max(l.now, l.day+r.time-l.first) // threads may log out of order
	if r.addr == 0 && r.action != failure {  // of no bytes
		return nil
	}
	switch r.action {
	case allocate:
		if l.overlaps(r) {
			l.odd++
			return nil
		}
		return l.begin(r)
	case free:
		return l.end(r)
	}
	arena, err := l.arenaOf(r.stream)
	if err != nil {
		return err
	}
	return l.event(trace.Event{Kind: trace.KindOOM, Arena: arena, Stream: int64(r.stream), Requested: int64(r.size)}, r)
}

func (l *log) event(e trace.Event, r *row) error {
	e.Seq, e.Time, e.Thread = l.w.NextSeq(), l.now, l.thread(r.thread)
	return l.w.Append(&e)
}

// thread returns a thread's number where it fits, and numbers the others.
func (l *log) thread(number uint64) int32 {
	if number <= math.MaxInt32 {
		return int32(number)
	}
	known, ok := l.threads[number]
	if !ok && len(l.threads) < 1<<16 {
		known = int32(len(l.threads) + 1)
		l.threads[number] = known
	}
	return known
}

// mostStreams bounds the arenas.
const mostStreams = 1 << 12

func (l *log) arenaOf(stream uint64) (int32, error) {
	if number, known := l.arenas[stream]; known {
		return number, nil
	}
	number := int32(len(l.arenas))
	if number >= mostStreams {
		return 0, fmt.Errorf("more than %d streams", mostStreams)
	}
	l.arenas[stream] = number
	main := "0"
	if number == 0 {
		main = "1"
	}
	text := trace.FormatContext(
		trace.Field{Name: "allocator", Value: "rmm"}, trace.Field{Name: "coalesces", Value: "0"},
		trace.Field{Name: "pool", Value: "0.0"}, trace.Field{Name: "main", Value: main})
	return number, l.event(trace.Event{Kind: trace.KindArena, Arena: number, Stream: int64(stream), Context: l.w.Intern(text)}, &row{})
}

// overlaps says whether a row's block overlaps one that is live.
func (l *log) overlaps(r *row) (busy bool) {
	l.live.Descend(r.addr, func(at uint64, b block) bool {
		busy = at+provided(b.size) > r.addr
		return false
	})
	l.live.Ascend(r.addr, func(at uint64, _ block) bool {
		busy = busy || at < r.addr+provided(r.size)
		return false
	})
	return busy
}

// begin writes a block that overlaps no other one.
func (l *log) begin(r *row) error {
	arena, err := l.arenaOf(r.stream)
	if err != nil {
		return err
	}
	l.live.Set(r.addr, block{r.size, r.stream, arena})
	size := int64(provided(r.size))
	e := trace.Event{Kind: trace.KindMap, Arena: arena, Addr: int64(r.addr), Requested: size, Provided: size}
	if err := l.event(e, r); err != nil {
		return err
	}
	e.Kind, e.Stream, e.Requested = trace.KindAlloc, int64(r.stream), int64(r.size)
	return l.event(e, r)
}

// end writes the free of a block. Its stream may be another one than that of its begin.
func (l *log) end(r *row) error {
	b, known := l.live.Get(r.addr)
	if !known || b.size != r.size {
		l.odd++
		return nil
	}
	l.live.Delete(r.addr)
	size := int64(provided(b.size))
	e := trace.Event{Kind: trace.KindFree, Arena: b.arena, Stream: int64(r.stream), Addr: int64(r.addr), Requested: int64(b.size), Provided: size}
	if err := l.event(e, r); err != nil {
		return err
	}
	return l.event(trace.Event{Kind: trace.KindUnmap, Arena: b.arena, Addr: int64(r.addr), Provided: size}, r)
}
