package trace

import (
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// rowBuffer collects rows by column until they are encoded.
type rowBuffer struct {
	batch Batch
	texts []parquet.ByteArray
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
			err = writeInt32(c, b.Device)
		case colArena:
			err = writeInt32(c, b.Arena)
		case colStream:
			err = writeInt64(c, b.Stream)
		case colAddr:
			err = writeInt64(c, b.Addr)
		case colRequested:
			err = writeInt64(c, b.Requested)
		case colProvided:
			err = writeInt64(c, b.Provided)
		case colContext:
			err = r.writeContexts(c, s)
		case colThread:
			err = writeInt32(c, b.Thread)
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

func writeInt32(c file.ColumnChunkWriter, values []int32) error {
	_, err := c.(*file.Int32ColumnChunkWriter).WriteBatch(values, nil, nil)
	return err
}

func (r *rowBuffer) writeKinds(c file.ColumnChunkWriter) error {
	var names [256]parquet.ByteArray
	for k := range kinds {
		if kinds[k].name == "" {
			continue
		}
		names[k] = parquet.ByteArray(kinds[k].name)
	}
	r.texts = r.texts[:0]
	for _, k := range r.batch.Kind {
		if names[k] == nil {
			return fmt.Errorf("%w: %v", ErrUnknownEvent, k)
		}
		r.texts = append(r.texts, names[k])
	}
	return r.writeTexts(c)
}

func (r *rowBuffer) writeContexts(c file.ColumnChunkWriter, s *Strings) error {
	known := s.snapshot().texts
	texts := make([]parquet.ByteArray, len(known))
	for i, text := range known {
		texts[i] = parquet.ByteArray(text)
	}
	r.texts = r.texts[:0]
	for _, id := range r.batch.Context {
		r.texts = append(r.texts, texts[id])
	}
	return r.writeTexts(c)
}

func (r *rowBuffer) writeTexts(c file.ColumnChunkWriter) error {
	_, err := c.(*file.ByteArrayColumnChunkWriter).WriteBatch(r.texts, nil, nil)
	return err
}
