package trace

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// rowBuffer collects rows by column until they are encoded.
type rowBuffer struct {
	batch Batch

	longs    dictionary[int64] // what encoding needs of memory, see dictionary.go
	ints     dictionary[int32]
	kinds    textDictionary
	contexts textDictionary
	numbers  []int32
}

func (r *rowBuffer) len() int { return len(r.batch.Seq) }

func (r *rowBuffer) add(e *Event) {
	b := &r.batch
	b.Seq = append(b.Seq, e.Seq)
	b.Time = append(b.Time, e.Time)
	b.Kind = append(b.Kind, e.Kind)
	b.Device = append(b.Device, e.Device)
	b.Arena = append(b.Arena, e.Arena)
	b.Stream = append(b.Stream, e.Stream)
	b.Addr = append(b.Addr, e.Addr)
	b.Requested = append(b.Requested, e.Requested)
	b.Provided = append(b.Provided, e.Provided)
	b.Context = append(b.Context, e.Context)
	b.Thread = append(b.Thread, e.Thread)
}

func (r *rowBuffer) reset() {
	b := &r.batch
	b.Seq, b.Time, b.Kind, b.Context = b.Seq[:0], b.Time[:0], b.Kind[:0], b.Context[:0]
	b.Device, b.Arena, b.Thread = b.Device[:0], b.Arena[:0], b.Thread[:0]
	b.Stream, b.Addr, b.Requested, b.Provided = b.Stream[:0], b.Addr[:0], b.Requested[:0], b.Provided[:0]
}

func (r *rowBuffer) write(group file.SerialRowGroupWriter, s *Strings) error {
	b := &r.batch
	for i := range schemaColumns {
		c, err := group.NextColumn()
		if err != nil {
			return err
		}
		switch i {
		case colSeq:
			err = writeInt64(c, b.Seq)
		case colTime:
			err = writeInt64(c, b.Time)
		case colKind:
			err = r.writeKinds(c)
		case colDevice:
			err = r.indexInt32(c, b.Device)
		case colArena:
			err = r.indexInt32(c, b.Arena)
		case colStream:
			err = r.indexInt64(c, b.Stream)
		case colAddr:
			err = writeInt64(c, b.Addr)
		case colRequested:
			err = r.indexInt64(c, b.Requested)
		case colProvided:
			err = r.indexInt64(c, b.Provided)
		case colContext:
			err = r.writeContexts(c, s)
		case colThread:
			err = r.indexInt32(c, b.Thread)
		}
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", schemaColumns[i].Name, err)
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
			return fmt.Errorf("%w: %v", ErrUnknownEvent, k)
		}
		r.numbers = append(r.numbers, int32(k))
	}
	used, indices := r.kinds.index(r.numbers, len(kinds))
	return writeIndexed(c, arrayOfTexts(len(used), func(i int) string { return kinds[used[i]].name }), indices)
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
