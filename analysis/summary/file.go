package summary

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/columns"
	"github.com/memprof/memprof/trace/outfile"
)

const (
	// MostBytes is the most that the table of a process takes.
	MostBytes = 100_000
	// Version is the version of tables that this package writes, and the newest that it reads.
	Version = 1
)

// The columns, in file order.
const (
	colProcess = iota
	colRank
	colDevice
	colIteration
	colIterations
	colPhase
	colCategory
	colTag
	colMetric
	colUnit
	colValue
	colSeq
	numColumns
)

const textPage = 4 << 20 // most bytes of a page of texts before compression

func textColumn(name string) columns.Column {
	return columns.Column{Name: name, Type: parquet.Types.ByteArray, PageBytes: func(int64) int64 { return textPage }}
}

var tableColumns = []columns.Column{
	colProcess:    textColumn("process"),
	colRank:       {Name: "rank", Type: parquet.Types.Int32},
	colDevice:     {Name: "device", Type: parquet.Types.Int32},
	colIteration:  {Name: "iteration", Type: parquet.Types.Int64},
	colIterations: {Name: "iterations", Type: parquet.Types.Int64},
	colPhase:      textColumn("phase"),
	colCategory:   textColumn("category"),
	colTag:        textColumn("tag"),
	colMetric:     textColumn("metric"),
	colUnit:       textColumn("unit"),
	colValue:      {Name: "value", Type: parquet.Types.Double},
	colSeq:        {Name: "seq", Type: parquet.Types.Int64},
}

// Path is where the table of a process of the run in dir lies.
func Path(dir, process string) string {
	return filepath.Join(dir, trace.SummaryName, process+".parquet")
}

// Write writes the table into the run in dir, whose directory of tables it makes if there is none. It joins iterations until
// the table has at most [MostBytes].
func (t *Table) Write(dir string) error {
	text, err := t.encode()
	if err != nil {
		return err
	}
	into := filepath.Join(dir, trace.SummaryName)
	if err := os.Mkdir(into, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return outfile.Write(Path(dir, t.Process.Name), 0o644, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func (t *Table) encode() ([]byte, error) {
	t.sort()
	for {
		text, err := t.parquet()
		if err != nil || len(text) <= MostBytes {
			return text, err
		}
		if !t.join() {
			return nil, fmt.Errorf("the summary of %s takes %d bytes, more than %d: it has %d phases and tags", t.Process.Name, len(text), MostBytes, t.parts())
		}
	}
}

// parts counts phases and tags.
func (t *Table) parts() int {
	names := map[[2]string]bool{}
	for i := range t.Rows {
		names[[2]string{t.Rows[i].Phase, t.Rows[i].Tag}] = true
	}
	return len(names)
}

// tableSchema is the schema of tableColumns.
func tableSchema() *schema.GroupNode {
	var fields schema.FieldList
	for _, c := range tableColumns {
		var logical schema.LogicalType = schema.NoLogicalType{}
		if c.Type == parquet.Types.ByteArray {
			logical = schema.StringLogicalType{}
		}
		fields = append(fields, schema.Must(schema.NewPrimitiveNodeLogical(c.Name, parquet.Repetitions.Required, logical, c.Type, -1, -1)))
	}
	return schema.MustGroup(schema.NewGroupNode("summary", parquet.Repetitions.Required, fields, -1))
}

func (t *Table) parquet() ([]byte, error) {
	properties := parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(9), parquet.WithDictionaryDefault(true),
		parquet.WithDataPageSize(16<<20), parquet.WithBatchSize(int64(len(t.Rows)+1)), parquet.WithStats(false), parquet.WithCreatedBy("memprof"))
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, tableSchema(), file.WithWriterProps(properties))
	if err := t.rowGroup(w); err != nil {
		return nil, err
	}
	for _, kv := range t.keyValues() {
		if err := w.AppendKeyValueMetadata(kv[0], strings.ToValidUTF8(kv[1], "\uFFFD")); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// rowGroup writes all rows as a row group.
func (t *Table) rowGroup(w *file.Writer) error {
	group := w.AppendRowGroup()
	for i := range tableColumns {
		c, err := group.NextColumn()
		if err == nil {
			err = t.column(i, c)
		}
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", tableColumns[i].Name, err)
		}
	}
	return group.Close()
}

func (t *Table) column(i int, c file.ColumnChunkWriter) (err error) {
	switch w := c.(type) {
	case *file.ByteArrayColumnChunkWriter:
		_, err = w.WriteBatch(each(t.Rows, func(r *Row) parquet.ByteArray {
			return parquet.ByteArray([...]string{colProcess: t.Process.Name, colPhase: r.Phase, colCategory: r.Category, colTag: r.Tag, colMetric: r.Metric, colUnit: r.Unit}[i])
		}), nil, nil)
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(each(t.Rows, func(r *Row) int32 {
			if i == colRank {
				return int32(t.Process.Rank)
			}
			return r.Device
		}), nil, nil)
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(each(t.Rows, func(r *Row) int64 {
			return [...]int64{colIteration: r.Iteration, colIterations: r.Iterations, colSeq: r.Seq}[i]
		}), nil, nil)
	case *file.Float64ColumnChunkWriter:
		_, err = w.WriteBatch(each(t.Rows, func(r *Row) float64 { return r.Value }), nil, nil)
	}
	return err
}

func each[T any](rows []Row, of func(*Row) T) []T {
	out := make([]T, len(rows))
	for i := range rows {
		out[i] = of(&rows[i])
	}
	return out
}

// keys of the file metadata.
const keyVersion = "memprof.summary_version"

func (t *Table) keyValues() [][2]string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	p := &t.Process
	kv := [][2]string{
		{keyVersion, number(Version)}, {"memprof.run_id", p.RunID}, {"memprof.process", p.Name}, {"memprof.pid", number(int64(p.PID))},
		{"memprof.rank", number(int64(p.Rank))}, {"memprof.local_rank", number(int64(p.LocalRank))}, {"memprof.world_size", number(int64(p.WorldSize))},
		{"memprof.local_world_size", number(int64(p.LocalWorldSize))}, {"memprof.command", p.Command}, {"memprof.frameworks", p.Frameworks},
		{"memprof.host", t.Host}, {"memprof.events", number(t.Events)}, {"memprof.dropped", number(t.Dropped)},
		{"memprof.state", string(t.Ending.State)}, {"memprof.state_reason", t.Ending.Reason},
	}
	for _, c := range t.Cards {
		at := "." + number(int64(c.Device))
		kv = append(kv, [2]string{"memprof.card" + at, c.Card}, [2]string{"memprof.gpu" + at, c.GPU}, [2]string{"memprof.driver" + at, c.Driver})
	}
	return kv
}

// Has says whether a process of the run in dir has a table.
func Has(dir, process string) bool {
	_, err := os.Stat(Path(dir, process))
	return err == nil
}
