package dataset

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/columns"
)

// batchRows is the most rows of a batch. Its columns, 2 MiB, fit into the cache of a core.
const batchRows = 32 << 10

// Reader reads the events of one process in order, batch by batch. A goroutine decodes the next batch while the
// caller uses the current one. It is not safe for concurrent use.
type Reader struct {
	free, full chan *batchBuffer
	stop       chan struct{}
	done       sync.WaitGroup
	held       *batchBuffer
	advance    func(events int)
	cut        int64 // the first event that is not read; 0: all are
	err        error // the first one, which Next returns from then on; io.EOF at the end
}

// batchBuffer is the memory of one Batch.
type batchBuffer struct {
	batch   trace.Batch // of the rows
	rows    trace.Batch // batchRows at most
	err     error
	numbers []int32 // of kinds
}

// newBatchBuffer has room for the rows of any of the parts, but for batchRows at most: a run may have thousands of short processes.
func newBatchBuffer(parts []Part) *batchBuffer {
	rows := int64(1)
	for i := range parts {
		rows = max(rows, min(parts[i].OpeningRows+parts[i].Events, batchRows))
	}
	long := func() []int64 { return make([]int64, rows) }
	short := func() []int32 { return make([]int32, rows) }
	return &batchBuffer{
		rows: trace.Batch{
			Seq: long(), Time: long(), Kind: make([]trace.Kind, rows), Device: short(), Arena: short(), Thread: short(),
			Stream: long(), Addr: long(), Requested: long(), Provided: long(), Context: short(),
		},
		numbers: short(),
	}
}

// NewReader starts at the process's first event. If Parts does not begin with part 0, it starts with the
// opening rows of the first part, whose seq is below Parts[0].FirstSeq. Close the Reader after use.
func (p *Process) NewReader() (*Reader, error) {
	return p.newReader(0)
}

// newReader starts at the opening rows of a part.
func (p *Process) newReader(part int) (*Reader, error) {
	if len(p.Parts) == 0 {
		return nil, &trace.PathError{Path: p.Name, Err: trace.ErrEmpty}
	}
	d := &decoder{parts: p.Parts[part:], strings: p.strings, firstNumber: p.Parts[part].Number}
	if err := d.openPart(); err != nil {
		return nil, err
	}
	r := &Reader{
		free: make(chan *batchBuffer, 2),
		full: make(chan *batchBuffer),
		stop: make(chan struct{}),

		advance: p.Advance, cut: p.cut,
	}
	if r.advance == nil {
		r.advance = func(int) {}
	}
	r.free <- newBatchBuffer(d.parts)
	r.free <- newBatchBuffer(d.parts)
	r.done.Add(1)
	go r.produce(d)
	return r, nil
}

func (r *Reader) produce(d *decoder) {
	defer r.done.Done()
	defer d.close()
	for {
		var b *batchBuffer
		select {
		case b = <-r.free:
		case <-r.stop:
			return
		}
		b.err = d.fill(b)
		select {
		case r.full <- b:
		case <-r.stop:
			return
		}
		if b.err != nil {
			return
		}
	}
}

// Next returns the next batch, of at least one event, which is valid until the next call; io.EOF after the
// last. Other errors name the part.
func (r *Reader) Next() (*trace.Batch, error) {
	if r.err != nil {
		return nil, r.err
	}
	if r.held != nil {
		r.free <- r.held
	}
	b := <-r.full
	r.held = b
	if b.err != nil {
		r.err = b.err
		return nil, r.err
	}
	r.advance(b.batch.Len())
	if r.cut > 0 && b.batch.Seq[b.batch.Len()-1] >= r.cut {
		n, _ := slices.BinarySearch(b.batch.Seq, r.cut)
		r.err = io.EOF
		if n == 0 {
			return nil, r.err
		}
		b.batch.Head(n)
	}
	return &b.batch, nil
}

// Each calls visit with the events that [Process.NewReader] reads, in order. An event is valid until visit
// returns. An error of visit ends the pass and is returned; other errors are those of reading.
func (p *Process) Each(visit func(*trace.Event) error) error {
	r, err := p.NewReader()
	if err != nil {
		return err
	}
	defer r.Close()
	for e, err := range trace.Events(r) {
		if err != nil {
			return err
		}
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the reading. The last batch is no longer valid.
func (r *Reader) Close() error {
	select {
	case <-r.stop:
		return nil
	default:
	}
	close(r.stop)
	r.done.Wait()
	r.advance(0)
	if r.err == nil {
		r.err = errors.New("read of a closed trace.Reader")
	}
	return nil
}

// decoder decodes parts one after the other, each by row groups.
type decoder struct {
	parts       []Part
	strings     *Strings
	firstNumber int

	part  *os.File // parts[0]; nil before it is opened
	pq    *file.Reader
	group int   // next row group
	skip  int64 // opening rows still to be skipped
	cols  groupReader

	opening int64  // opening rows of the part that are not read yet
	clock   *clock // nil before the first event
}

func (d *decoder) close() {
	if d.part != nil {
		d.part.Close()
		d.part = nil
	}
}

func (d *decoder) openPart() error {
	p := &d.parts[0]
	f, err := os.Open(p.Path)
	if err != nil {
		return err
	}
	pq, err := openParquet(p.Path, f)
	if err != nil {
		f.Close()
		return err
	}
	d.part, d.pq, d.group, d.skip, d.opening = f, pq, 0, 0, p.OpeningRows
	if p.Number != d.firstNumber {
		d.skip = p.OpeningRows
	}
	return nil
}

// fill decodes the next batch into b, or returns io.EOF.
func (d *decoder) fill(b *batchBuffer) (err error) {
	// The Parquet library panics at some damaged metadata.
	defer func() {
		if p := recover(); p != nil {
			err = d.damaged(fmt.Errorf("%v", p))
		}
	}()
	for {
		if d.cols.left > 0 {
			n := int(min(d.cols.left, int64(len(b.rows.Seq))))
			if err := d.cols.read(b, n); err != nil {
				return d.damaged(err)
			}
			restated := int(min(d.opening, int64(n)))
			d.opening -= int64(restated)
			if err := d.checkTimes(b.rows.Slice(restated, n)); err != nil {
				return d.damaged(err)
			}
			skip := int(min(d.skip, int64(n)))
			d.skip -= int64(skip)
			if skip < n {
				b.batch = b.rows.Slice(skip, n)
				return nil
			}
			continue
		}
		if d.part != nil && d.group < d.pq.NumRowGroups() {
			d.group++
			if err := d.cols.open(d.part, d.pq.MetaData().RowGroup(d.group-1), d.strings); err != nil {
				return d.damaged(err)
			}
			continue
		}
		if err := d.nextPart(); err != nil {
			return err
		}
	}
}

// Times are those of clocks that do not fall. A thread may be stopped between its reading of the clock and the writing of a
// mark, and a job may sleep; but not for so long. Only a free of an observed allocator is written with that allocator's next
// decision, however late that is. Nanoseconds.
const (
	mostFall = int64(10 * time.Second)
	mostLeap = int64(366 * 24 * time.Hour)
)

// clock is the greatest time of an event so far, and its number.
type clock struct{ time, seq int64 }

// checkTimes fails for times that no process has: an axis of them would be of no use, and may have no end.
func (d *decoder) checkTimes(b trace.Batch) error {
	if len(b.Time) == 0 {
		return nil
	}
	if d.clock == nil {
		d.clock = &clock{b.Time[0], b.Seq[0]}
	}
	c := *d.clock
	for i, now := range b.Time {
		switch {
		case now > c.time+mostLeap || now < c.time-mostFall && (now < 0 || b.Kind[i] != trace.KindFree && b.Kind[i] != trace.KindStreamUse):
			return fmt.Errorf("event seq %d is at %d ns, and event seq %d at %d ns", b.Seq[i], now, c.seq, c.time)
		case now > c.time:
			c = clock{now, b.Seq[i]}
		}
	}
	*d.clock = c
	return nil
}

func (d *decoder) nextPart() error {
	d.close()
	if len(d.parts) == 1 {
		return io.EOF
	}
	d.parts = d.parts[1:]
	return d.openPart()
}

func (d *decoder) damaged(err error) error {
	if errors.Is(err, trace.ErrUnknownEvent) {
		return &trace.PathError{Path: d.parts[0].Path, Err: trace.ErrUnknownEvent, Detail: err.Error(), Remedy: "use a newer memprof to read it"}
	}
	return damagedPart(d.parts[0].Path, "row group %d: %v", d.group-1, err)
}

// groupReader decodes the columns of one row group, each time the same rows of all.
type groupReader struct {
	left    int64 // rows
	long    [numColumns]columns.Numbers[int64]
	short   [numColumns]columns.Numbers[int32]
	kind    columns.Texts
	context columns.Texts
}

// open begins a row group. It reuses the buffers of the one before.
func (g *groupReader) open(f io.ReaderAt, group *metadata.RowGroupMetaData, s *Strings) error {
	for i, c := range schemaColumns {
		var chunk *columns.Chunk
		switch {
		case i == colKind:
			g.kind.Number, chunk = kindNumber, &g.kind.Chunk
		case i == colContext:
			g.context.Number, chunk = s.internWithin, &g.context.Chunk
		case c.Type == parquet.Types.Int64:
			chunk = &g.long[i].Chunk
		default:
			chunk = &g.short[i].Chunk
		}
		if err := openChunk(chunk, f, group, i); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	g.left = group.NumRows()
	return nil
}

func openChunk(c *columns.Chunk, f io.ReaderAt, group *metadata.RowGroupMetaData, column int) error {
	chunk, err := group.ColumnChunk(column)
	if err != nil {
		return err
	}
	start := chunk.DataPageOffset()
	if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
		start = min(start, chunk.DictionaryPageOffset())
	}
	c.Open(f, &schemaColumns[column], start, start+chunk.TotalCompressedSize(), group.NumRows())
	return nil
}

func kindNumber(text string) (int32, error) {
	k, ok := trace.ParseKind(text)
	if !ok {
		return 0, fmt.Errorf("%w %q", trace.ErrUnknownEvent, text)
	}
	return int32(k), nil
}

// read decodes the next n rows into the arrays of b.
func (g *groupReader) read(b *batchBuffer, n int) error {
	for i := range schemaColumns {
		if err := g.readColumn(i, b, n); err != nil {
			return fmt.Errorf("column %s: %w", schemaColumns[i].Name, err)
		}
	}
	g.left -= int64(n)
	return nil
}

func (g *groupReader) readColumn(i int, b *batchBuffer, n int) error {
	switch rows := columnOf(&b.rows, i).(type) {
	case []int64:
		return g.long[i].Read(rows[:n])
	case []int32:
		if i == colContext {
			return g.context.Read(rows[:n])
		}
		return g.short[i].Read(rows[:n])
	case []trace.Kind:
		if err := g.kind.Read(b.numbers[:n]); err != nil {
			return err
		}
		for j, k := range b.numbers[:n] {
			rows[j] = trace.Kind(k)
		}
	}
	return nil
}
