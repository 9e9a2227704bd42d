package dataset

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The library, given the values of each column, writes the same bytes.
func TestDictionaries(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	texts := NewStrings()
	for i := range 3000 {
		texts.Intern(fmt.Sprintf("module=layer%d", i))
	}
	long := strings.Repeat("x", 30<<20) // three are no dictionary
	var rows rowBuffer
	for group, c := range []struct{ rows, values, contexts int }{{1, 1, 1}, {5000, 1, 1}, {20000, 30, 200}, {20000, 1 << 40, 3000}, {50, 7, 0}, {3, 3, 3}} {
		if c.contexts == 0 {
			for i := range 3 {
				texts.Intern(fmt.Sprint(i, long))
			}
			c.contexts = texts.Len()
		}
		for i := range c.rows {
			rows.add(&trace.Event{
				Seq: int64(i), Time: int64(i) * 500, Kind: trace.KindAlloc + trace.Kind(random.IntN(3)), Device: int32(random.IntN(3) - 1), Arena: int32(random.IntN(20) - 1), Stream: random.Int64() % 3,
				Addr: random.Int64(), Requested: random.Int64N(int64(c.values)), Provided: -random.Int64N(int64(c.values)), Context: int32(c.contexts - 1 - random.IntN(min(c.contexts, 2000))), Thread: int32(random.IntN(2)),
			})
		}
		if group == 4 {
			for i := range 3 {
				rows.batch.Context[i] = int32(texts.Len() - 1 - i)
			}
		}
		want, got := encodedBy(t, valueByValue, &rows, texts), encodedBy(t, (*rowBuffer).write, &rows, texts)
		assert.That(t, bytes.Equal(got, want), "group %d: %d bytes, the library writes %d", group, len(got), len(want))
		rows.reset()
	}
}

func encodedBy(t *testing.T, write func(*rowBuffer, file.SerialRowGroupWriter, *Strings) error, rows *rowBuffer, texts *Strings) []byte {
	t.Helper()
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, newSchema(), file.WithWriterProps(writerProperties(rowGroupRows)))
	group := w.AppendRowGroup()
	assert.NoError(t, write(rows, group, texts))
	assert.NoError(t, group.Close())
	assert.NoError(t, w.Close())
	return out.Bytes()
}

// valueByValue writes all columns by the library alone.
func valueByValue(r *rowBuffer, group file.SerialRowGroupWriter, s *Strings) error {
	b := &r.batch
	kindNames := make([]parquet.ByteArray, len(b.Kind))
	contexts := make([]parquet.ByteArray, len(b.Kind))
	for i := range b.Kind {
		kindNames[i], contexts[i] = parquet.ByteArray(b.Kind[i].String()), parquet.ByteArray(s.Text(b.Context[i]))
	}
	for _, values := range []any{b.Seq, b.Time, kindNames, b.Device, b.Arena, b.Stream, b.Addr, b.Requested, b.Provided, contexts, b.Thread} {
		c, err := group.NextColumn()
		if err != nil {
			return err
		}
		switch values := values.(type) {
		case []int64:
			_, err = c.(*file.Int64ColumnChunkWriter).WriteBatch(values, nil, nil)
		case []int32:
			_, err = c.(*file.Int32ColumnChunkWriter).WriteBatch(values, nil, nil)
		case []parquet.ByteArray:
			_, err = c.(*file.ByteArrayColumnChunkWriter).WriteBatch(values, nil, nil)
		}
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}
