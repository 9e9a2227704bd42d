package summary

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/columns"
)

// Bounds of what is read, far above what any table has.
const (
	mostFileBytes = 16 << 20
	mostTextBytes = 64 << 20 // of a column, after decompression: a row that is not in a dictionary has its own
	mostValue     = 1 << 62  // of a row, in its unit
)

// remedy is for whatever is wrong with a table: it follows from the recording.
const remedy = "delete it and run `memprof summarize` on the recording"

// Read reads a table. Its rows are those of the file, in the order in which [Table.Write] writes them. Each has a finite value, and
// iterations from 0 on, if any; no two of the whole process are of the same. The error is a *trace.PathError, or that of the file system.
func Read(path string) (t *Table, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	damaged := func(err error) error {
		return &trace.PathError{Path: path, Err: trace.ErrDamaged, Detail: err.Error(), Remedy: remedy}
	}
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() || stat.Size() < 12 || stat.Size() > mostFileBytes {
		return nil, damaged(fmt.Errorf("not a regular file of 12 to %d bytes", mostFileBytes))
	}
	footer, err := columns.ReadFooter(f, stat.Size())
	if err != nil {
		return nil, damaged(err)
	}
	text, ok := footer.Metadata(keyVersion)
	version, err := strconv.Atoi(text)
	switch {
	case !ok || err != nil:
		return nil, damaged(fmt.Errorf("no %s in its metadata", keyVersion))
	case version > Version:
		return nil, &trace.PathError{Path: path, Err: trace.ErrNewerSchema, Detail: fmt.Sprintf("summary version %d, this memprof knows up to %d", version, Version), Remedy: "use a newer memprof to read it"}
	}
	if err := footer.CheckSchema(numColumns); err != nil {
		return nil, damaged(err)
	}
	if err := footer.CheckRowGroups(tableColumns); err != nil {
		return nil, damaged(err)
	}
	// The Parquet library panics at some damaged metadata.
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, damaged(fmt.Errorf("%v", p))
		}
	}()
	t = &Table{}
	if err := t.metadata(footer); err != nil {
		return nil, damaged(err)
	}
	pq, err := file.NewParquetReader(f)
	if err != nil {
		return nil, damaged(err)
	}
	if n := pq.NumRowGroups(); n != 1 {
		return nil, damaged(fmt.Errorf("%d row groups, not 1", n))
	}
	if err := t.group(f, pq); err != nil {
		return nil, damaged(err)
	}
	return t, nil
}

func (t *Table) metadata(footer *columns.Footer) error {
	var wrong error
	text := func(key string) string {
		value, _ := footer.Metadata("memprof." + key)
		return value
	}
	number := func(key string) int64 {
		n, err := strconv.ParseInt(text(key), 10, 64)
		if err != nil && wrong == nil {
			wrong = fmt.Errorf("memprof.%s is missing or malformed in its metadata", key)
		}
		return n
	}
	t.Process = trace.ProcessMeta{
		RunID: text("run_id"), Name: text("process"), PID: int(number("pid")), Rank: int(number("rank")), LocalRank: int(number("local_rank")),
		WorldSize: int(number("world_size")), LocalWorldSize: int(number("local_world_size")), Command: text("command"), Frameworks: text("frameworks"),
	}
	t.Host, t.Events, t.Dropped = text("host"), number("events"), number("dropped")
	t.Ending = trace.Ending{State: trace.State(text("state")), Reason: text("state_reason")}
	return wrong
}

// group reads the rows, which are one row group.
func (t *Table) group(f *os.File, pq *file.Reader) error {
	meta := pq.MetaData().RowGroup(0)
	t.Rows = make([]Row, meta.NumRows())
	for i := range tableColumns {
		column, err := meta.ColumnChunk(i)
		if err != nil {
			return err
		}
		start := column.DataPageOffset()
		if column.HasDictionaryPage() && column.DictionaryPageOffset() > 0 {
			start = min(start, column.DictionaryPageOffset())
		}
		chunk := columns.NewChunk(f, &tableColumns[i], start, start+column.TotalCompressedSize(), meta.NumRows())
		if err := readColumn(i, chunk, t.Rows); err != nil {
			return fmt.Errorf("column %s: %w", tableColumns[i].Name, err)
		}
	}
	if err := t.check(); err != nil {
		return err
	}
	devices := map[int32]bool{}
	for i := range t.Rows {
		if device := t.Rows[i].Device; !devices[device] {
			devices[device] = true
			t.card(pq, device)
		}
	}
	return nil
}

// check fails for rows that no recording leads to.
func (t *Table) check() error {
	for i := range t.Rows {
		row := &t.Rows[i]
		if err := row.check(); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		if i == 0 {
			continue
		}
		switch order := t.Rows[i-1].compare(row); {
		case order > 0:
			return fmt.Errorf("row %d is not in order", i)
		case order == 0 && row.Iterations == 0: // a job may number two iterations alike
			return fmt.Errorf("row %d is of the same as the row before", i)
		}
	}
	return nil
}

func (r *Row) check() error {
	switch {
	case !(math.Abs(r.Value) <= mostValue): // NaN is not, either
		return fmt.Errorf("%s is %v", r.Metric, r.Value)
	case r.Iterations < 0 || r.Iterations > 0 && (r.Iteration < 0 || r.Iteration > math.MaxInt64-r.Iterations):
		return fmt.Errorf("%d iterations from %d on", r.Iterations, r.Iteration)
	}
	return nil
}

// card adds what the metadata says of the GPU of a device.
func (t *Table) card(pq *file.Reader, device int32) {
	kv := pq.MetaData().KeyValueMetadata()
	text := func(key string) string {
		if v := kv.FindValue(fmt.Sprintf("memprof.%s.%d", key, device)); v != nil {
			return *v
		}
		return ""
	}
	t.Cards = append(t.Cards, Card{device, text("card"), text("gpu"), text("driver")})
}

func readColumn(i int, chunk columns.Chunk, rows []Row) error {
	switch i {
	case colRank, colDevice:
		values := make([]int32, len(rows))
		if err := (&columns.Numbers[int32]{Chunk: chunk}).Read(values); err != nil || i == colRank {
			return err
		}
		for j, v := range values {
			rows[j].Device = v
		}
	case colIteration, colIterations, colSeq:
		values := make([]int64, len(rows))
		if err := (&columns.Numbers[int64]{Chunk: chunk}).Read(values); err != nil {
			return err
		}
		for j, v := range values {
			switch row := &rows[j]; i {
			case colIteration:
				row.Iteration = v
			case colIterations:
				row.Iterations = v
			default:
				row.Seq = v
			}
		}
	case colValue:
		values := make([]float64, len(rows))
		if err := (&columns.Numbers[float64]{Chunk: chunk}).Read(values); err != nil {
			return err
		}
		for j, v := range values {
			rows[j].Value = v
		}
	default:
		return readTexts(i, chunk, rows)
	}
	return nil
}

func readTexts(i int, chunk columns.Chunk, rows []Row) error {
	var texts []string
	bytes := 0
	reader := columns.Texts{Chunk: chunk, Number: func(text string) (int32, error) {
		if bytes += len(text); bytes > mostTextBytes {
			return 0, fmt.Errorf("more than %d bytes of text", mostTextBytes)
		}
		texts = append(texts, text)
		return int32(len(texts) - 1), nil
	}}
	numbers := make([]int32, len(rows))
	if err := reader.Read(numbers); err != nil {
		return err
	}
	for j, n := range numbers {
		switch row := &rows[j]; i {
		case colPhase:
			row.Phase = texts[n]
		case colCategory:
			row.Category = texts[n]
		case colTag:
			row.Tag = texts[n]
		case colMetric:
			row.Metric = texts[n]
		case colUnit:
			row.Unit = texts[n]
		}
	}
	return nil
}
