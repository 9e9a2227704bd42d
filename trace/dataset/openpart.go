package dataset

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/memprof/memprof/trace"
)

// openPart is an incomplete part. It keeps encoded bytes in memory until they are in the file, so that a full
// disk loses none.
type openPart struct {
	info    Part
	dir     *os.Root
	temp    string // name while it is incomplete
	file    PartFile
	bytes   int64 // in the file
	out     *file.Writer
	pending []byte // encoded, not in the file yet
	rows    rowBuffer
	events  int64 // rows, opening rows not counted
	closed  bool  // the footer is encoded; no row can be added
	noSync  bool
}

func createPart(dir *os.Root, meta *ProcessMeta, number int, opt *WriterOptions) (*openPart, error) {
	base := fmt.Sprintf("%s-%04d", meta.Name, number)
	p := &openPart{
		info: Part{Path: filepath.Join(dir.Name(), base+partSuffix), Number: number, FirstTime: math.MaxInt64},
		dir:  dir, temp: base + tempSuffix(meta.RunID), noSync: opt.NoSync,
	}
	f, err := opt.Create(dir, p.temp)
	if err != nil {
		return nil, trace.DiskError(p.path(), err)
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
	if p.rows.len() == 0 {
		return nil
	}
	group := p.out.AppendRowGroup()
	err := p.rows.write(group, s)
	if err == nil {
		err = group.Close()
	}
	if err != nil {
		return fmt.Errorf("%s: encode: %w", p.path(), err)
	}
	p.rows.reset()
	return nil
}

// flush writes encoded bytes to the file and keeps those that the disk has no room for.
func (p *openPart) flush() error {
	if len(p.pending) == 0 {
		return nil
	}
	n, err := p.file.Write(p.pending)
	p.bytes += int64(n)
	p.pending = p.pending[:copy(p.pending, p.pending[n:])]
	return trace.DiskError(p.path(), err)
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
	if !p.noSync {
		if err := p.file.Sync(); err != nil {
			return trace.DiskError(p.path(), err)
		}
	}
	p.info.Bytes = p.bytes
	if held, ok := p.file.(memoryFile); ok {
		p.info.Path, p.info.held = held.name(), held.File
		return nil
	}
	if err := p.dir.Rename(p.temp, filepath.Base(p.info.Path)); err != nil {
		return trace.DiskError(p.info.Path, err)
	}
	return p.file.Close()
}

// path is the path of the incomplete part, for messages.
func (p *openPart) path() string { return filepath.Join(p.dir.Name(), p.temp) }

func (p *openPart) remove() {
	p.file.Close()
	if _, ok := p.file.(memoryFile); !ok {
		p.dir.Remove(p.temp)
	}
}
