package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/columns"
)

// keySchema is the key of a part's file metadata that every part has, and no other file.
const keySchema = "memprof.schema_version"

// ProcessMeta describes the process whose events a part holds.
type ProcessMeta struct {
	RunID     string
	Name      string // "rank0", "pid4711": the start of the parts' file names
	Spool     string // name of its spool directory; "" if there was none
	PID       int
	Rank      int // -1 if it has none; likewise LocalRank and WorldSize
	LocalRank int
	WorldSize int

	LocalWorldSize int // ranks on this host; 0 if that is unknown

	Command    string
	Frameworks string // "torch 2.11.0+cu130; jax 0.9", in the order in which they reported themselves
}

// FrameworkNames divides Frameworks: "torch 2.11.0+cu130", "jax 0.9". It is empty without any.
func (m *ProcessMeta) FrameworkNames() []string {
	names := []string{}
	for name := range strings.SplitSeq(m.Frameworks, ";") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// State says how the recording of a process ended.
type State string

const (
	StateClosed  State = "closed"  // the process exited normally
	StateKilled  State = "killed"  // it was killed; all records that it had committed are there
	StateStopped State = "stopped" // recording ended before the process did
)

// Ending describes how the recording of a process ended; the last part of a process has it.
type Ending struct {
	State    State
	Reason   string   // of StateStopped, or what is wrong with a damaged spool
	Lost     int64    // spool slots that the process claimed and did not fill
	Problems []string // of the hook, one line each
	// LastAlive is when the collector last saw the process alive, in nanoseconds since the run's
	// clock base; 0 if it never did, as in a recovery. It may be after the last event.
	LastAlive int64
}

// Part is one Parquet file of a process.
type Part struct {
	Path        string
	Number      int   // from 0
	FirstSeq    int64 // seq of its first event, opening rows not counted
	FirstTime   int64 // of that event; MaxInt64 if it has none, or that is not known
	Marks       int64 // of iterations, before that event; -1 if they are not known
	Events      int64 // rows after the opening rows
	OpeningRows int64
	NextSlot    int64 // spool slot after that of its last event; -1 if there was no spool
	Dropped     int64 // events before its first that a ring dropped; the process begins with this part. Else 0
	Last        bool  // the last part of the process; Ending is valid
	Ending      Ending
	Bytes       int64 // of the file
	Process     ProcessMeta

	written int64 // events by the part's metadata; differs from Events if rows were removed or added
	seed    uint64
	sums    []uint64
	end     uint64
	held    *os.File // keeps a part open that exists in memory only
}

// readPart reads the metadata of one part.
func readPart(path string) (*Part, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := openParquet(path, f)
	if err != nil {
		return nil, err
	}
	p, err := parsePart(path, r.MetaData())
	if err != nil {
		return nil, err
	}
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p.Bytes = stat.Size()
	return p, nil
}

// openFile opens a file of a run for reading and follows links. It does not block on a pipe.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|trace.NonBlock, 0)
}

// openParquet opens a part. It distinguishes what the Parquet library reports as one error: a file that
// is not Parquet, and one whose end is missing.
func openParquet(path string, f *os.File) (r *file.Reader, err error) {
	const magic = "PAR1"
	var head, tail [4]byte
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case stat.IsDir():
		return nil, &trace.PathError{Path: path, Err: trace.ErrNotParquet, Detail: "it is a directory"}
	case !stat.Mode().IsRegular():
		return nil, &trace.PathError{Path: path, Err: trace.ErrNotParquet, Detail: "it is not a regular file"}
	}
	if _, err := f.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if string(head[:]) != magic {
		return nil, &trace.PathError{Path: path, Err: trace.ErrNotParquet, Remedy: "give the directory of a run, or one of its .parquet parts"}
	}
	if _, err := f.ReadAt(tail[:], stat.Size()-int64(len(tail))); err != nil || string(tail[:]) != magic || stat.Size() < 12 {
		return nil, truncatedPart(path, fmt.Sprintf("%d bytes", stat.Size()))
	}
	if err := checkFooter(path, f, stat.Size()); err != nil {
		return nil, err
	}
	// The library's metadata parser panics on some damaged footers.
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, damagedPart(path, "%v", p)
		}
	}()
	r, err = file.NewParquetReader(f)
	if err != nil {
		return nil, truncatedPart(path, err.Error())
	}
	return r, nil
}

// checkFooter checks the footer of a part before the Parquet library parses it: a damaged or hostile one must not make
// the library allocate or read by counts, sizes and offsets that the file does not have. A Parquet file that
// is no part is ErrNotTrace, a part of a newer schema ErrNewerSchema, anything else wrong ErrDamaged
// or ErrTruncated.
func checkFooter(path string, f *os.File, size int64) error {
	footer, err := columns.ReadFooter(f, size)
	if err != nil {
		return footerError(path, err)
	}
	version, isTrace := footer.Metadata(keySchema)
	if !isTrace {
		return notTrace(path, "no "+keySchema+" in its metadata")
	}
	if version, err := strconv.Atoi(version); err == nil && version > SchemaVersion {
		return newerSchema(path, version)
	}
	if err := footer.CheckSchema(numColumns); err != nil {
		return notTrace(path, err.Error())
	}
	// Only now it is known to be ours, so that its row groups must be, too.
	if err := footer.CheckRowGroups(schemaColumns); err != nil {
		return footerError(path, err)
	}
	return nil
}

func footerError(path string, err error) error {
	var wrong *columns.Error
	switch {
	case !errors.As(err, &wrong):
		return fmt.Errorf("%s: %w", path, err)
	case wrong.Truncated:
		return truncatedPart(path, wrong.Detail)
	}
	return damagedPart(path, "%s", wrong.Detail)
}

func damagedPart(path, format string, args ...any) error {
	return &trace.PathError{Path: path, Err: trace.ErrDamaged, Detail: fmt.Sprintf(format, args...), Remedy: "copy the part again"}
}

func notTrace(path, detail string) error {
	return &trace.PathError{Path: path, Err: trace.ErrNotTrace, Detail: detail, Remedy: "give the directory of a run, or one of its .parquet parts"}
}

func truncatedPart(path, detail string) error {
	return &trace.PathError{Path: path, Err: trace.ErrTruncated, Detail: detail,
		Remedy: "copy the part again, or run `memprof record --finish` on the run's directory if its spool is still there"}
}

// field is a value of a part's file metadata. See the package comment for what they mean.
type field struct {
	key     string
	value   any // a pointer to where it is kept
	written bool
	needed  bool // not of those that traces of older versions lack
}

// fields are those of every part.
func (p *Part) fields() []field {
	m, schema := &p.Process, SchemaVersion
	return []field{
		{keySchema, &schema, true, true}, // checkFooter knows that it is none of a newer memprof
		{"memprof.run_id", &m.RunID, true, true},
		{"memprof.process", &m.Name, true, true},
		{"memprof.spool", &m.Spool, true, true},
		{"memprof.pid", &m.PID, true, true},
		{"memprof.rank", &m.Rank, true, true},
		{"memprof.local_rank", &m.LocalRank, true, true},
		{"memprof.world_size", &m.WorldSize, true, true},
		{"memprof.command", &m.Command, true, true},
		{"memprof.frameworks", &m.Frameworks, true, true},
		{"memprof.part", &p.Number, true, true},
		{"memprof.first_seq", &p.FirstSeq, true, true},
		{"memprof.events", &p.written, true, true},
		{"memprof.opening_rows", &p.OpeningRows, true, true},
		{"memprof.next_slot", &p.NextSlot, true, true},
		{"memprof.checksum_seed", &p.seed, true, true},
		{"memprof.checksums", &p.sums, true, true},
		{"memprof.checksum_end", &p.end, true, true},
		{"memprof.last", &p.Last, true, true},
		{"memprof.iterations", &p.Marks, true, false},
		{"memprof.first_time_ns", &p.FirstTime, p.FirstTime < math.MaxInt64, false}, // of a part with events
		{"memprof.local_world_size", &m.LocalWorldSize, m.LocalWorldSize > 0, false},
		{keyDropped, &p.Dropped, p.Dropped > 0, false},
	}
}

// keyDropped is only of the first part that a ring kept.
const keyDropped = "memprof.dropped"

// fields are those that the last part of a process has besides.
func (e *Ending) fields() []field {
	return []field{
		{"memprof.state", (*string)(&e.State), true, true},
		{"memprof.state_reason", &e.Reason, true, true},
		{"memprof.lost", &e.Lost, true, true},
		{"memprof.problems", &e.Problems, true, true},
		{"memprof.last_alive_ns", &e.LastAlive, true, false},
	}
}

// text is the value as it is written.
func (f *field) text() string {
	switch v := f.value.(type) {
	case *bool:
		return strconv.FormatBool(*v)
	case *int:
		return strconv.Itoa(*v)
	case *int64:
		return strconv.FormatInt(*v, 10)
	case *uint64:
		return fmt.Sprintf("%016x", *v)
	case *[]uint64:
		return strings.Trim(fmt.Sprintf("%016x", *v), "[]")
	case *[]string:
		return strings.Join(*v, "\n")
	}
	return *f.value.(*string)
}

// parse reads what text wrote.
func (f *field) parse(text string) (err error) {
	switch v := f.value.(type) {
	case *string:
		*v = text
	case *bool:
		*v = text == "true"
	case *int:
		*v, err = strconv.Atoi(text)
	case *int64:
		*v, err = strconv.ParseInt(text, 10, 64)
	case *uint64:
		*v, err = strconv.ParseUint(text, 16, 64)
	case *[]uint64:
		for _, word := range strings.Fields(text) {
			sum, bad := strconv.ParseUint(word, 16, 64)
			*v, err = append(*v, sum), cmp.Or(err, bad)
		}
	case *[]string:
		if text != "" {
			*v = strings.Split(text, "\n")
		}
	}
	return err
}

// readFields returns the first key that is missing or malformed, or "".
func readFields(kv metadata.KeyValueMetadata, fields []field) string {
	for _, f := range fields {
		text := kv.FindValue(f.key)
		if text == nil && f.needed || text != nil && f.parse(*text) != nil {
			return f.key
		}
	}
	return ""
}

func parsePart(path string, md *metadata.FileMetaData) (*Part, error) {
	p := &Part{Path: path, FirstTime: math.MaxInt64, Marks: -1}
	bad := readFields(md.KeyValueMetadata(), p.fields())
	if bad == "" && p.Last {
		bad = readFields(md.KeyValueMetadata(), p.Ending.fields())
	}
	if bad == "" && p.Dropped != 0 && p.Dropped != p.FirstSeq {
		bad = keyDropped
	}
	if bad != "" {
		return nil, notTrace(path, bad+" is missing or malformed in its metadata")
	}
	if !validName(p.Process.Name) {
		return nil, damagedPart(path, "its process is named %.200q; names consist of letters, digits, -, _ and dots", p.Process.Name)
	}
	if err := checkColumns(md); err != nil {
		return nil, notTrace(path, err.Error())
	}
	rows := rowsOf(md)
	p.Events = rows - p.OpeningRows
	if p.OpeningRows < 0 || p.Events < 0 || p.FirstSeq < 0 || p.Number < 0 || p.written < 0 {
		return nil, damagedPart(path, "%d rows, and %d opening rows by its metadata", rows, p.OpeningRows)
	}
	return p, nil
}

func rowsOf(md *metadata.FileMetaData) (rows int64) {
	for i := range md.NumRowGroups() {
		rows += md.RowGroup(i).NumRows()
	}
	return rows
}

// validName says whether a process may have this name. Names of files begin with it, so it must not lead
// to another directory.
func validName(name string) bool {
	const most = 128 // bytes
	letters := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
	}
	return name != "" && len(name) <= most && name[0] != '.' && strings.TrimFunc(name, letters) == ""
}

func checkColumns(md *metadata.FileMetaData) error {
	if n := md.Schema.NumColumns(); n != numColumns {
		return fmt.Errorf("%d columns, not %d", n, numColumns)
	}
	for i, want := range schemaColumns {
		c := md.Schema.Column(i)
		if c.Name() != want.Name || c.PhysicalType() != want.Type || c.MaxDefinitionLevel() != 0 || c.MaxRepetitionLevel() != 0 {
			return fmt.Errorf("column %d is %s %v, not a required %s %v", i, c.Name(), c.PhysicalType(), want.Name, want.Type)
		}
	}
	return nil
}

// keyValues is the file metadata that parsePart reads.
func (p *Part) keyValues() [][2]string {
	fields := p.fields()
	if p.Last {
		fields = append(fields, p.Ending.fields()...)
	}
	var kv [][2]string
	for _, f := range fields {
		if f.written {
			kv = append(kv, [2]string{f.key, trace.ValidText(f.text())}) // paths in it may be of any bytes
		}
	}
	return kv
}
