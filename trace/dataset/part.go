package dataset

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/columns"
)

// The keys of a part's file metadata. See the package comment for what they mean.
const (
	keySchema     = "memprof.schema_version"
	keyRun        = "memprof.run_id"
	keyProcess    = "memprof.process"
	keySpool      = "memprof.spool"
	keyPID        = "memprof.pid"
	keyRank       = "memprof.rank"
	keyLocalRank  = "memprof.local_rank"
	keyWorldSize  = "memprof.world_size"
	keyLocalWorld = "memprof.local_world_size" // only if it is known
	keyCommand    = "memprof.command"
	keyFrameworks = "memprof.frameworks"
	keyPart       = "memprof.part"
	keyFirstSeq   = "memprof.first_seq"
	keyEvents     = "memprof.events"
	keyOpening    = "memprof.opening_rows"
	keyNextSlot   = "memprof.next_slot"
	keySeed       = "memprof.checksum_seed"
	keySums       = "memprof.checksums"
	keyEnd        = "memprof.checksum_end"
	keyLast       = "memprof.last"
	keyState      = "memprof.state"
	keyReason     = "memprof.state_reason"
	keyLost       = "memprof.lost"
	keyProblems   = "memprof.problems"
	keyAlive      = "memprof.last_alive_ns" // not in traces of older versions
	keyDropped    = "memprof.dropped"       // only of the first part that a ring kept
	keyFirstTime  = "memprof.first_time_ns" // only of a part with events, as this and the next are not in traces of older versions
	keyMarks      = "memprof.iterations"
)

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
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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

// fields reads typed values from file metadata. bad is the first key that is missing or malformed.
type fields struct {
	kv  metadata.KeyValueMetadata
	bad string
}

func (m *fields) text(key string) string {
	if v := m.kv.FindValue(key); v != nil {
		return *v
	}
	m.fail(key)
	return ""
}

func (m *fields) integer(key string) int64 {
	n, err := strconv.ParseInt(m.text(key), 10, 64)
	if err != nil {
		m.fail(key)
	}
	return n
}

func (m *fields) sum(key string) uint64 { return m.parseSum(key, m.text(key)) }

func (m *fields) parseSum(key, text string) uint64 {
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		m.fail(key)
	}
	return n
}

func (m *fields) sums(key string) []uint64 {
	var sums []uint64
	for _, word := range strings.Fields(m.text(key)) {
		sums = append(sums, m.parseSum(key, word))
	}
	return sums
}

func (m *fields) fail(key string) {
	if m.bad == "" {
		m.bad = key
	}
}

func parsePart(path string, md *metadata.FileMetaData) (*Part, error) {
	m := &fields{kv: md.KeyValueMetadata()}
	m.integer(keySchema) // checkFooter knows that it is none of a newer memprof
	p := &Part{
		Path: path,
		Process: ProcessMeta{
			RunID: m.text(keyRun), Name: m.text(keyProcess), Spool: m.text(keySpool),
			PID: int(m.integer(keyPID)), Rank: int(m.integer(keyRank)),
			LocalRank: int(m.integer(keyLocalRank)), WorldSize: int(m.integer(keyWorldSize)),
			Command: m.text(keyCommand), Frameworks: m.text(keyFrameworks),
		},
		Number: int(m.integer(keyPart)), FirstSeq: m.integer(keyFirstSeq),
		OpeningRows: m.integer(keyOpening), NextSlot: m.integer(keyNextSlot),
		Last:      m.text(keyLast) == "true",
		FirstTime: math.MaxInt64, Marks: -1,
		written: m.integer(keyEvents),
		seed:    m.sum(keySeed), sums: m.sums(keySums), end: m.sum(keyEnd),
	}
	m.optional(p)
	if m.bad != "" {
		return nil, notTrace(path, m.bad+" is missing or malformed in its metadata")
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

// optional reads the fields that only some parts have.
func (m *fields) optional(p *Part) {
	if m.kv.FindValue(keyLocalWorld) != nil {
		p.Process.LocalWorldSize = int(m.integer(keyLocalWorld))
	}
	if m.kv.FindValue(keyDropped) != nil {
		if p.Dropped = m.integer(keyDropped); p.Dropped != p.FirstSeq {
			m.fail(keyDropped)
		}
	}
	if m.kv.FindValue(keyFirstTime) != nil {
		p.FirstTime = m.integer(keyFirstTime)
	}
	if m.kv.FindValue(keyMarks) != nil {
		p.Marks = m.integer(keyMarks)
	}
	if p.Last {
		p.Ending = Ending{State: State(m.text(keyState)), Reason: m.text(keyReason), Lost: m.integer(keyLost)}
		if lines := m.text(keyProblems); lines != "" {
			p.Ending.Problems = strings.Split(lines, "\n")
		}
		if m.kv.FindValue(keyAlive) != nil {
			p.Ending.LastAlive = m.integer(keyAlive)
		}
	}
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
	integer := func(n int64) string { return strconv.FormatInt(n, 10) }
	hex := func(n uint64) string { return fmt.Sprintf("%016x", n) }
	var sums []string
	for _, s := range p.sums {
		sums = append(sums, hex(s))
	}
	m := &p.Process
	kv := [][2]string{
		{keySchema, integer(SchemaVersion)},
		{keyRun, m.RunID},
		{keyProcess, m.Name},
		{keySpool, m.Spool},
		{keyPID, integer(int64(m.PID))},
		{keyRank, integer(int64(m.Rank))},
		{keyLocalRank, integer(int64(m.LocalRank))},
		{keyWorldSize, integer(int64(m.WorldSize))},
		{keyCommand, m.Command},
		{keyFrameworks, m.Frameworks},
		{keyPart, integer(int64(p.Number))},
		{keyFirstSeq, integer(p.FirstSeq)},
		{keyEvents, integer(p.written)},
		{keyOpening, integer(p.OpeningRows)},
		{keyNextSlot, integer(p.NextSlot)},
		{keySeed, hex(p.seed)},
		{keySums, strings.Join(sums, " ")},
		{keyEnd, hex(p.end)},
		{keyLast, strconv.FormatBool(p.Last)},
		{keyMarks, integer(p.Marks)},
	}
	if p.FirstTime < math.MaxInt64 {
		kv = append(kv, [2]string{keyFirstTime, integer(p.FirstTime)})
	}
	if m.LocalWorldSize > 0 {
		kv = append(kv, [2]string{keyLocalWorld, integer(int64(m.LocalWorldSize))})
	}
	if p.Dropped > 0 {
		kv = append(kv, [2]string{keyDropped, integer(p.Dropped)})
	}
	if p.Last {
		kv = append(kv,
			[2]string{keyState, string(p.Ending.State)},
			[2]string{keyReason, p.Ending.Reason},
			[2]string{keyLost, integer(p.Ending.Lost)},
			[2]string{keyProblems, strings.Join(p.Ending.Problems, "\n")},
			[2]string{keyAlive, integer(p.Ending.LastAlive)})
	}
	for i := range kv {
		kv[i][1] = trace.ValidText(kv[i][1]) // paths in it may be of any bytes
	}
	return kv
}
