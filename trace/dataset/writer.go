package dataset

import (
	"fmt"
	"os"
	"strings"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/outfile"
)

// MaxPartEvents is the most events of a part, opening rows not counted: a pass over so many takes a tenth of a second, in
// which any moment of a recording can be shown.
const MaxPartEvents = 1 << 19

// rowGroupRows is the number of rows that a Writer collects before it encodes them: 18 MiB of columns, and
// their dictionaries.
const rowGroupRows = 1 << 18

// WriterOptions are the sizes that a Writer uses; 0 means the constants above.
type WriterOptions struct {
	PartEvents int // most events in a part, 1 to MaxPartEvents
	RowGroup   int // rows encoded at a time

	// NoSync leaves it to the system when parts reach the disk: for what can be made again, as an import.
	NoSync bool

	// Create makes the file of a part in the run's directory: nil for a file on disk, or [InMemory], or a test's full disk.
	Create func(dir *os.Root, name string) (PartFile, error)
}

// PartFile is the file of a part.
type PartFile interface {
	Write(b []byte) (int, error)
	Sync() error
	Close() error
}

func createFile(dir *os.Root, name string) (PartFile, error) { return outfile.Create(dir, name) }

// Writer writes the events of one process to parts in a run's directory. A part gets its name when it is
// complete; until then its name ends in .RUNID.parquet.tmp.
//
// If a call returns an error, the Writer has not taken the event. The call may be repeated, for example
// after room has been made on a full disk ([trace.ErrDiskFull]). A Writer is not safe for concurrent use.
type Writer struct {
	dir     string
	root    *os.Root // of dir; nil before the first part and after the last
	meta    ProcessMeta
	opt     WriterOptions
	strings *Strings
	opening *opener
	rolling *Rolling
	nextSeq int64
	slot    int64 // spool slot after that of the last event; -1 if events have no slots

	part  *openPart
	done  []Part
	spare rowBuffer // of the part before
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
	if opt.Create == nil {
		opt.Create = createFile
	}
	texts := NewStrings()
	return &Writer{
		dir: dir, meta: meta, opt: opt, slot: -1,
		strings: texts, opening: newOpener(texts), rolling: NewRolling(),
	}
}

// ResumeWriter continues after the complete parts of a process, one or more.
func ResumeWriter(dir string, opt WriterOptions, parts []Part) (*Writer, error) {
	last := parts[len(parts)-1]
	w := NewWriter(dir, last.Process, opt)
	p := &Process{ProcessMeta: last.Process, Parts: []Part{last}, strings: w.strings}
	w.opening.marks = last.Marks
	err := p.Each(func(e *trace.Event) error {
		w.opening.add(e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.done = parts
	w.nextSeq = last.FirstSeq + last.Events
	w.rolling = resumeRolling(last.end, w.nextSeq)
	w.slot = last.NextSlot
	return w, nil
}

// Intern returns the number of a context text, for Event.Context of appended events.
func (w *Writer) Intern(text string) int32 { return w.strings.Intern(text) }

// Totals are the process's sums after the last event.
func (w *Writer) Totals() trace.Totals {
	t := w.opening.live.Totals()
	t.Events = w.nextSeq
	return t
}

// Parts returns the complete parts.
func (w *Writer) Parts() []Part { return w.done }

// NextSeq is the seq of the next event.
func (w *Writer) NextSeq() int64 { return w.nextSeq }

// SetFrameworks replaces the frameworks of the process in the metadata of parts that are not complete yet.
func (w *Writer) SetFrameworks(text string) { w.meta.Frameworks = text }

// Append writes one event, whose Seq must be [Writer.NextSeq].
func (w *Writer) Append(e *trace.Event) error {
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
		if err := w.part.encode(w.strings); err != nil {
			return err
		}
	}
	if err := w.part.flush(); err != nil {
		return err
	}
	w.part.rows.add(e)
	if w.part.events++; w.part.events == 1 {
		w.part.info.FirstTime = e.Time
	}
	w.nextSeq++
	w.opening.add(e)
	w.rolling.add(e, w.strings.snapshot().hashes[e.Context])
	return nil
}

// Name is the name of the process.
func (w *Writer) Name() string { return w.meta.Name }

// AppendSlot is Append of an event from a spool slot.
func (w *Writer) AppendSlot(e *trace.Event, slot int64) error {
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

// Abandon removes what is incomplete.
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
	return removeTemporary(w.dir, func(name string) bool {
		return strings.HasPrefix(name, w.meta.Name+"-") && strings.HasSuffix(name, tempSuffix(w.meta.RunID))
	})
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
	part, err := createPart(w.root, &w.meta, number, &w.opt)
	if err != nil {
		return err
	}
	part.rows, w.spare = w.spare, rowBuffer{}
	part.info.FirstSeq, part.info.Marks = w.nextSeq, w.opening.marks
	part.info.seed = w.rolling.state
	if w.nextSeq > 0 {
		// What a ring begins with is read by all, and no free in it is of a block that is not there.
		opening := w.opening.rows(w.Skipped() == 0)
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
	w.spare, w.part = p.rows, nil
	return nil
}
