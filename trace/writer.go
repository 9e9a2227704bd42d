package trace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/memprof/memprof/trace/outfile"
)

// MaxPartEvents is the most events of a part, opening rows not counted.
const MaxPartEvents = 2 << 20

// rowGroupRows is the number of rows that a Writer collects before it encodes them: 18 MiB of columns, and
// their dictionaries.
const rowGroupRows = 1 << 18

const partSuffix = ".parquet"

// tempSuffix ends the names of incomplete parts of a run. It contains the run's ID, so that no other run removes
// them.
func tempSuffix(runID string) string { return "." + runID + partSuffix + ".tmp" }

// WriterOptions are the sizes that a Writer uses; 0 means the constants above.
type WriterOptions struct {
	PartEvents int // most events in a part, 1 to MaxPartEvents
	RowGroup   int // rows encoded at a time

	// Overlap encodes rows while the next are collected, on another core: for a writer that has many events at
	// once. It takes the memory of another row group, and an error of the encoding comes some rows later.
	Overlap bool

	create func(dir *os.Root, name string) (partFile, error) // tests put a full disk here
}

// partFile is the file of a part.
type partFile interface {
	Write(b []byte) (int, error)
	Sync() error
	Close() error
}

func createFile(dir *os.Root, name string) (partFile, error) { return outfile.Create(dir, name) }

// Writer writes the events of one process to parts in a run's directory. A part gets its name when it is
// complete; until then its name ends in .RUNID.parquet.tmp.
//
// If a call returns an error, the Writer has not taken the event. The call may be repeated, for example
// after room has been made on a full disk ([ErrDiskFull]). A Writer is not safe for concurrent use.
type Writer struct {
	dir     string
	root    *os.Root // of dir; nil before the first part and after the last
	meta    ProcessMeta
	opt     WriterOptions
	strings *Strings
	opening *opening
	rolling *Rolling
	nextSeq int64
	slot    int64 // spool slot after that of the last event; -1 if events have no slots

	part *openPart
	done []Part
}

// NewWriter writes a process named meta.Name to the run directory dir. It creates no file before the first
// event, or Finish.
func NewWriter(dir string, meta ProcessMeta, opt WriterOptions) *Writer {
	if opt.PartEvents <= 0 || opt.PartEvents > MaxPartEvents {
		opt.PartEvents = MaxPartEvents
	}
	if opt.RowGroup <= 0 {
		opt.RowGroup = rowGroupRows
	}
	if opt.create == nil {
		opt.create = createFile
	}
	texts := NewStrings()
	return &Writer{
		dir: dir, meta: meta, opt: opt, slot: -1,
		strings: texts, opening: newOpening(texts), rolling: NewRolling(),
	}
}

// resumeWriter continues after the complete parts of the process that meta describes.
func resumeWriter(dir string, meta ProcessMeta, opt WriterOptions, parts []Part) (*Writer, error) {
	w := NewWriter(dir, meta, opt)
	last := parts[len(parts)-1]
	p := &Process{ProcessMeta: meta, Parts: []Part{last}, strings: w.strings}
	err := p.Each(func(e *Event) error {
		w.opening.add(e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.done = parts
	w.nextSeq = last.FirstSeq + last.Events
	w.opening.live.totals.Events = w.nextSeq
	w.rolling = resumeRolling(last.end, w.nextSeq)
	w.slot = last.NextSlot
	return w, nil
}

// Intern returns the number of a context text, for Event.Context of appended events.
func (w *Writer) Intern(text string) int32 { return w.strings.Intern(text) }

// Totals are the process's sums after the last event.
func (w *Writer) Totals() Totals { return w.opening.live.Totals() }

// Parts returns the complete parts.
func (w *Writer) Parts() []Part { return w.done }

// NextSeq is the seq of the next event.
func (w *Writer) NextSeq() int64 { return w.nextSeq }

// SetFrameworks replaces the frameworks of the process in the metadata of parts that are not complete yet.
func (w *Writer) SetFrameworks(text string) { w.meta.Frameworks = text }

// Append writes one event, whose Seq must be [Writer.NextSeq].
func (w *Writer) Append(e *Event) error {
	if e.Seq != w.nextSeq {
		return fmt.Errorf("append to %s: event has seq %d, expected %d", w.meta.Name, e.Seq, w.nextSeq)
	}
	if e.Context < 0 || int(e.Context) >= w.strings.Len() {
		return fmt.Errorf("append to %s: event %d has context %d of %d", w.meta.Name, e.Seq, e.Context, w.strings.Len())
	}
	if err := w.finishClosed(); err != nil {
		return err
	}
	if w.part != nil && w.part.events >= int64(w.opt.PartEvents) {
		if err := w.completePart(nil); err != nil {
			return err
		}
	}
	if err := w.ensurePart(); err != nil {
		return err
	}
	if w.part.rows.len() >= w.opt.RowGroup {
		encode := w.part.encode
		if w.opt.Overlap {
			encode = w.part.encodeBehind
		}
		if err := encode(w.strings); err != nil {
			return err
		}
	}
	if err := w.part.flush(); err != nil {
		return err
	}
	w.part.rows.add(e)
	w.part.events++
	w.nextSeq++
	w.opening.add(e)
	w.rolling.add(e, w.strings.snapshot().hashes[e.Context])
	return nil
}

// appendSlot is Append of an event from a spool slot.
func (w *Writer) appendSlot(e *Event, slot int64) error {
	if err := w.Append(e); err != nil {
		return err
	}
	w.slot = slot + 1
	return nil
}

// finishClosed writes the last bytes of a part whose footer is encoded. An earlier call failed to write them.
func (w *Writer) finishClosed() error {
	if w.part == nil || !w.part.closed {
		return nil
	}
	return w.completePart(w.part.lastEnding())
}

func (p *openPart) lastEnding() *Ending {
	if !p.info.Last {
		return nil
	}
	return &p.info.Ending
}

// CompletePart completes the current part early, if it has events.
func (w *Writer) CompletePart() error {
	if err := w.finishClosed(); err != nil {
		return err
	}
	if w.part == nil || w.part.events == 0 {
		return nil
	}
	return w.completePart(nil)
}

// Finish completes the last part, with end in its metadata. A process without events gets one part without rows.
func (w *Writer) Finish(end Ending) error {
	if err := w.finishClosed(); err != nil {
		return err
	}
	if n := len(w.done); n > 0 && w.done[n-1].Last {
		return nil
	}
	if err := w.ensurePart(); err != nil {
		return err
	}
	if err := w.completePart(&end); err != nil {
		return err
	}
	w.closeDir()
	return nil
}

// Abandon removes the incomplete part.
func (w *Writer) Abandon() {
	if w.part != nil {
		w.part.remove()
		w.part = nil
	}
	w.closeDir()
}

// RemoveTemporary removes incomplete parts of the process. Unlike Abandon, it may be called while another call
// has not returned.
func (w *Writer) RemoveTemporary() error {
	dir, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := entriesOf(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), w.meta.Name+"-") && strings.HasSuffix(e.Name(), tempSuffix(w.meta.RunID)) {
			err = errors.Join(err, dir.Remove(e.Name()))
		}
	}
	return err
}

func (w *Writer) closeDir() {
	if w.root != nil {
		w.root.Close()
		w.root = nil
	}
}

func (w *Writer) ensurePart() error {
	if w.part != nil {
		return nil
	}
	if w.root == nil {
		root, err := os.OpenRoot(w.dir)
		if err != nil {
			return err
		}
		w.root = root
	}
	number := 0
	if n := len(w.done); n > 0 {
		number = w.done[n-1].Number + 1
	}
	part, err := createPart(w.root, &w.meta, number, w.opt)
	if err != nil {
		return err
	}
	part.info.FirstSeq = w.nextSeq
	part.info.seed = w.rolling.state
	if w.nextSeq > 0 {
		opening := w.opening.rows()
		part.info.OpeningRows = int64(len(opening))
		for i := range opening {
			if part.rows.len() >= w.opt.RowGroup {
				if err := part.encode(w.strings); err != nil {
					part.remove()
					return err
				}
			}
			part.rows.add(&opening[i])
		}
	}
	w.rolling.blocks = nil
	w.part = part
	return nil
}

func (w *Writer) completePart(end *Ending) error {
	p := w.part
	p.info.Process = w.meta
	p.info.Events, p.info.written = p.events, p.events
	p.info.NextSlot = w.slot
	p.info.end = w.rolling.state
	p.info.sums = w.rolling.Checksums()
	if end != nil {
		p.info.Last, p.info.Ending = true, *end
		p.info.sums = w.rolling.Finish()
	}
	if err := p.complete(w.strings); err != nil {
		return err
	}
	w.done = append(w.done, p.info)
	w.part = nil
	return nil
}

// openPart is an incomplete part. It keeps encoded bytes in memory until they are in the file, so that a full
// disk loses none.
type openPart struct {
	info    Part
	dir     *os.Root
	temp    string // name while it is incomplete
	file    partFile
	bytes   int64 // in the file
	out     *file.Writer
	pending []byte // encoded, not in the file yet
	rows    rowBuffer
	events  int64 // rows, opening rows not counted
	closed  bool  // the footer is encoded; no row can be added

	behind  chan error // of the encoding under way, nil if there is none; it owns pending and encoded
	encoded rowBuffer
}

func createPart(dir *os.Root, meta *ProcessMeta, number int, opt WriterOptions) (*openPart, error) {
	base := fmt.Sprintf("%s-%04d", meta.Name, number)
	p := &openPart{
		info: Part{Path: filepath.Join(dir.Name(), base+partSuffix), Number: number},
		dir:  dir, temp: base + tempSuffix(meta.RunID),
	}
	f, err := opt.create(dir, p.temp)
	if err != nil {
		return nil, diskError(p.path(), err)
	}
	p.file = f
	p.out = file.NewParquetWriter(p, newSchema(), file.WithWriterProps(writerProperties(opt.RowGroup)))
	return p, nil
}

// Write collects the bytes that the Parquet library encodes; it never fails.
func (p *openPart) Write(b []byte) (int, error) {
	p.pending = append(p.pending, b...)
	return len(b), nil
}

// encode encodes the collected rows as a row group.
func (p *openPart) encode(s *Strings) error {
	if err := p.wait(); err != nil || p.rows.len() == 0 {
		return err
	}
	return p.encodeRows(&p.rows, s)
}

// encodeBehind is encode on another goroutine, once the rows before are encoded.
func (p *openPart) encodeBehind(s *Strings) error {
	if err := p.wait(); err != nil {
		return err
	}
	if err := p.flush(); err != nil {
		return err
	}
	p.rows, p.encoded = p.encoded, p.rows
	behind := make(chan error, 1)
	p.behind = behind
	go func() { behind <- p.encodeRows(&p.encoded, s) }()
	return nil
}

// wait returns when no encoding is under way, and its error.
func (p *openPart) wait() error {
	if p.behind == nil {
		return nil
	}
	err := <-p.behind
	p.behind = nil
	return err
}

func (p *openPart) encodeRows(rows *rowBuffer, s *Strings) error {
	group := p.out.AppendRowGroup()
	err := rows.write(group, s)
	if err == nil {
		err = group.Close()
	}
	if err != nil {
		return fmt.Errorf("%s: encode: %w", p.path(), err)
	}
	rows.reset()
	return nil
}

// flush writes encoded bytes to the file and keeps those that the disk has no room for.
func (p *openPart) flush() error {
	if p.behind != nil || len(p.pending) == 0 {
		return nil
	}
	n, err := p.file.Write(p.pending)
	p.bytes += int64(n)
	p.pending = p.pending[:copy(p.pending, p.pending[n:])]
	return diskError(p.path(), err)
}

func (p *openPart) complete(s *Strings) error {
	if !p.closed {
		if err := p.encode(s); err != nil {
			return err
		}
		for _, kv := range p.info.keyValues() {
			if err := p.out.AppendKeyValueMetadata(kv[0], kv[1]); err != nil {
				return fmt.Errorf("%s: %w", p.path(), err)
			}
		}
		// Close returns no error of the footer.
		if err := p.out.FlushWithFooter(); err != nil {
			return fmt.Errorf("%s: encode footer: %w", p.path(), err)
		}
		if err := p.out.Close(); err != nil {
			return fmt.Errorf("%s: encode footer: %w", p.path(), err)
		}
		p.closed = true
	}
	if err := p.flush(); err != nil {
		return err
	}
	if err := p.file.Sync(); err != nil {
		return diskError(p.path(), err)
	}
	p.info.Bytes = p.bytes
	if held, ok := p.file.(memoryFile); ok {
		p.info.Path, p.info.held = held.name(), held.File
		return nil
	}
	if err := p.dir.Rename(p.temp, filepath.Base(p.info.Path)); err != nil {
		return diskError(p.info.Path, err)
	}
	return p.file.Close()
}

// path is the path of the incomplete part, for messages.
func (p *openPart) path() string { return filepath.Join(p.dir.Name(), p.temp) }

func (p *openPart) remove() {
	_ = p.wait() // the part is given up
	p.file.Close()
	if _, ok := p.file.(memoryFile); !ok {
		p.dir.Remove(p.temp)
	}
}

func diskError(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &PathError{Path: path, Err: ErrDiskFull, Detail: err.Error(), Remedy: "make room there"}
	}
	return fmt.Errorf("write %s: %w", path, err)
}
