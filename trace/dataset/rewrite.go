package dataset

import (
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/memprof/memprof/trace"
)

// RewritePart replaces the rows of the part at path, opening rows included, by those that change returns. It
// keeps the metadata with the checksums. Tests make damage with it that `memprof verify` has to find.
func RewritePart(path string, change func(rows []trace.Event, s *Strings) []trace.Event) error {
	part, err := readPart(path)
	if err != nil {
		return err
	}
	p := NewProcess([]Part{*part})
	rows, err := p.ReadAll()
	if err != nil {
		return err
	}
	rows = change(rows, p.strings)
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	out := &openPart{info: *part, dir: dir, temp: filepath.Base(path) + ".tmp"}
	if out.file, err = createFile(dir, out.temp); err != nil {
		return err
	}
	out.out = file.NewParquetWriter(out, newSchema(), file.WithWriterProps(writerProperties(rowGroupRows)))
	for i := range rows {
		out.rows.add(&rows[i])
	}
	if err := out.complete(p.strings); err != nil {
		out.remove()
		return err
	}
	return nil
}

// ReadAll returns all events of the process, the opening rows of its first part included. It is for tests
// and small traces.
func (p *Process) ReadAll() ([]trace.Event, error) {
	var rows []trace.Event
	err := p.Each(func(e *trace.Event) error {
		rows = append(rows, *e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}
