package dataset

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/columns"
)

// rowBuffer collects rows by column until they are encoded.
type rowBuffer struct {
	batch trace.Batch

	longs    dictionary[int64] // what encoding needs of memory, see dictionary.go
	ints     dictionary[int32]
	kinds    textDictionary
	contexts textDictionary
	numbers  []int32
}

func (r *rowBuffer) len() int { return len(r.batch.Seq) }

func (r *rowBuffer) add(e *trace.Event) { r.batch.Append(e) }

func (r *rowBuffer) reset() { r.batch.Head(0) }

// columnOf is the column of a batch by its place in the file.
func columnOf(b *trace.Batch, i int) any {
	return [numColumns]any{
		colSeq: b.Seq, colTime: b.Time, colKind: b.Kind, colDevice: b.Device, colArena: b.Arena, colStream: b.Stream,
		colAddr: b.Addr, colRequested: b.Requested, colProvided: b.Provided, colContext: b.Context, colThread: b.Thread,
	}[i]
}

func (r *rowBuffer) write(group file.SerialRowGroupWriter, s *Strings) error {
	for i, declared := range schemaColumns {
		c, err := group.NextColumn()
		if err != nil {
			return err
		}
		switch rows := columnOf(&r.batch, i).(type) {
		case []int64:
			if declared.Encoding == columns.Dictionary {
				err = r.indexInt64(c, rows)
			} else {
				err = writeInt64(c, rows)
			}
		case []trace.Kind:
			err = r.writeKinds(c)
		case []int32:
			if i == colContext {
				err = r.writeContexts(c, s)
			} else {
				err = r.indexInt32(c, rows)
			}
		}
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", declared.Name, err)
		}
	}
	return nil
}

func writeInt64(c file.ColumnChunkWriter, values []int64) error {
	_, err := c.(*file.Int64ColumnChunkWriter).WriteBatch(values, nil, nil)
	return err
}

func (r *rowBuffer) indexInt64(c file.ColumnChunkWriter, rows []int64) error {
	values, indices := r.longs.index(rows)
	return writeIndexed(c, arrayOf(arrow.PrimitiveTypes.Int64, len(values), arrow.Int64Traits.CastToBytes(values)), indices)
}

func (r *rowBuffer) indexInt32(c file.ColumnChunkWriter, rows []int32) error {
	values, indices := r.ints.index(rows)
	return writeIndexed(c, arrayOf(arrow.PrimitiveTypes.Int32, len(values), arrow.Int32Traits.CastToBytes(values)), indices)
}

func (r *rowBuffer) writeKinds(c file.ColumnChunkWriter) error {
	r.numbers = r.numbers[:0]
	for _, k := range r.batch.Kind {
		if !k.Valid() {
			return fmt.Errorf("%w: %v", trace.ErrUnknownEvent, k)
		}
		r.numbers = append(r.numbers, int32(k))
	}
	used, indices := r.kinds.index(r.numbers, int(trace.KindLost)+1)
	return writeIndexed(c, arrayOfTexts(len(used), func(i int) string { return trace.Kind(used[i]).String() }), indices)
}

func (r *rowBuffer) writeContexts(c file.ColumnChunkWriter, s *Strings) error {
	texts := s.snapshot().texts
	used, indices := r.contexts.index(r.batch.Context, len(texts))
	bytes := 0
	for _, id := range used {
		bytes += len(texts[id]) + 4
	}
	if bytes >= maxDictionary {
		return writeTexts(c, used, indices, texts)
	}
	return writeIndexed(c, arrayOfTexts(len(used), func(i int) string { return texts[used[i]] }), indices)
}

// writeTexts writes contexts one by one. The library writes them plain where the dictionary gets too large.
func writeTexts(c file.ColumnChunkWriter, used, indices []int32, texts []string) error {
	values := make([]parquet.ByteArray, len(used))
	for i, id := range used {
		values[i] = parquet.ByteArray(texts[id])
	}
	rows := make([]parquet.ByteArray, len(indices))
	for i, index := range indices {
		rows[i] = values[index]
	}
	_, err := c.(*file.ByteArrayColumnChunkWriter).WriteBatch(rows, nil, nil)
	return err
}
