package dataset

import (
	"sync"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/klauspost/compress/zstd"

	"github.com/memprof/memprof/trace/columns"
)

// TimeStep is the resolution of recorded times, in nanoseconds. The low bits of a clock are noise that does not
// compress: in recordings of training they took a fifth of the trace. Kernels are launched some
// microseconds apart, and seq has the order of events.
const TimeStep = 256

// SchemaVersion is the version that this package writes, and the newest that it reads.
const SchemaVersion = 1

// The columns of a part, in file order.
const (
	colSeq = iota
	colTime
	colKind
	colDevice
	colArena
	colStream
	colAddr
	colRequested
	colProvided
	colContext
	colThread
	numColumns
)

// maxTextPage is the most bytes of a page of contexts before compression.
const maxTextPage = 256 << 20

var schemaColumns = []columns.Column{
	colSeq:       {Name: "seq", Type: parquet.Types.Int64, Encoding: columns.Delta},
	colTime:      {Name: "time_ns", Type: parquet.Types.Int64, Encoding: columns.Delta},
	colKind:      {Name: "kind", Type: parquet.Types.ByteArray, PageBytes: func(values int64) int64 { return 64*values + 1024 }},
	colDevice:    {Name: "device", Type: parquet.Types.Int32},
	colArena:     {Name: "arena", Type: parquet.Types.Int32},
	colStream:    {Name: "stream", Type: parquet.Types.Int64},
	colAddr:      {Name: "addr", Type: parquet.Types.Int64, Encoding: columns.Plain},
	colRequested: {Name: "requested", Type: parquet.Types.Int64},
	colProvided:  {Name: "provided", Type: parquet.Types.Int64},
	colContext:   {Name: "context", Type: parquet.Types.ByteArray, PageBytes: func(int64) int64 { return maxTextPage }},
	colThread:    {Name: "thread", Type: parquet.Types.Int32},
}

// maxDictionary is the most bytes of a column's dictionary, for a row group.
const maxDictionary = 64 << 20

func newSchema() *schema.GroupNode {
	fields := make(schema.FieldList, 0, numColumns)
	for _, c := range schemaColumns {
		if c.Type == parquet.Types.ByteArray {
			fields = append(fields, schema.Must(schema.NewPrimitiveNodeLogical(c.Name, parquet.Repetitions.Required, schema.StringLogicalType{}, c.Type, -1, -1)))
			continue
		}
		fields = append(fields, schema.Must(schema.NewPrimitiveNode(c.Name, parquet.Repetitions.Required, c.Type, -1, -1)))
	}
	return schema.MustGroup(schema.NewGroupNode("event", parquet.Repetitions.Required, fields, -1))
}

// writerProperties chooses encodings. seq and time grow by small steps: delta. Other columns repeat values: dictionary.
// Addresses are plain, because an iteration repeats long runs of addresses of the one before, which zstd
// finds in plain bytes and not in bit-packed dictionary indices. A batch is a whole row group, so that
// the library chooses between dictionary and plain by all its rows.
func writerProperties(rowGroup int) *parquet.WriterProperties {
	return parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithCompressionLevel(zstdLevel),
		parquet.WithDictionaryDefault(true),
		parquet.WithDictionaryPageSizeLimit(maxDictionary),
		parquet.WithDataPageSize(64<<20),
		parquet.WithBatchSize(int64(rowGroup)),
		parquet.WithDictionaryFor("seq", false),
		parquet.WithEncodingFor("seq", parquet.Encodings.DeltaBinaryPacked),
		parquet.WithDictionaryFor("time_ns", false),
		parquet.WithEncodingFor("time_ns", parquet.Encodings.DeltaBinaryPacked),
		parquet.WithDictionaryFor("addr", false),
		// Minimum and maximum let query engines skip row groups by seq or time. For other columns they would
		// only make the footer longer.
		parquet.WithStats(false),
		parquet.WithStatsFor("seq", true),
		parquet.WithStatsFor("time_ns", true),
		parquet.WithCreatedBy("memprof"),
	)
}

// zstdLevel 3: level 19 would make the trace of TestSize 1.5 % smaller and writing it take 1.4x as long.
const zstdLevel = 3

// pageCodec is the Parquet library's zstd with one encoder for all pages of a level. The library makes one for each page, of 0.5 GB in all
// for a trace of a million events, and of 0.1 s in all for a table of 30 columns.
type pageCodec struct {
	compress.Codec
	encoders [zstd.SpeedBestCompression + 1]func() *zstd.Encoder // EncodeAll may be called by several goroutines
}

func (c *pageCodec) EncodeLevel(dst, src []byte, level int) []byte {
	if level == compress.DefaultCompressionLevel {
		return c.Encode(dst, src)
	}
	return c.encoders[zstd.EncoderLevelFromZstd(level)]().EncodeAll(src, dst[:0])
}

func init() {
	library, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		panic(err) // zstd is built in
	}
	codec := &pageCodec{Codec: library}
	for level := range codec.encoders {
		codec.encoders[level] = sync.OnceValue(func() *zstd.Encoder {
			encoder, err := zstd.NewWriter(nil, zstd.WithZeroFrames(true), zstd.WithEncoderLevel(zstd.EncoderLevel(level)))
			if err != nil {
				panic(err) // the options are constants
			}
			return encoder
		})
	}
	compress.RegisterCodec(compress.Codecs.Zstd, codec)
}
