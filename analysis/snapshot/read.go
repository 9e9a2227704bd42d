package snapshot

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/memprof/memprof/analysis/snapshot/pickle"
)

// maxDevices is how many devices a snapshot may name.
const maxDevices = 64

// Budget is how many bytes of memory reading a snapshot may take.
const Budget = 1 << 30

// decoder reads what torch put into a pickle.
type decoder struct {
	*pickle.Decoder
	scopes []annotation // of entries, see readScope
}

// entry is one action of a device's trace, as torch recorded it.
type entry struct {
	action   action
	device   int32
	addr     uint64
	size     uint64
	block    uint64 // bytes of the block, where the file says them: memprof's export does; 0: they follow from torch's rules
	stream   uint64
	timeUS   int64
	stack    int64  // its number; 0 without one
	metadata uint64 // number of its text, from 1; 0 without one
	pool     [2]uint64
}

// segment is memory that torch held when the snapshot was taken.
type segment struct {
	device     int
	addr, size uint64
	stream     uint64
	small      bool
	expandable bool
	pool       [2]uint64
	blocks     []block
}

// Bytes that a segment, a block and the begin or end of a scope take.
const keptSegment, keptBlock, keptScope = 128, 160, 80

type block struct {
	addr, size, requested uint64
	live, pending         bool
	frames                pickle.Value
	stack                 int64 // the same, numbered
}

// annotation is a mark on the time axis: the begin or the end of something.
type annotation struct {
	name   string
	begin  bool
	timeUS int64
}

// file is a snapshot on disk, which is decoded once for each pass.
type file struct {
	path string
	skip int64 // entries of each device that are passed over; tests cut rings by it
}

// open returns the pickle, unpacked where the file is gzipped.
func (f *file) open() (io.ReadCloser, error) {
	in, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	if stat, err := in.Stat(); err == nil && stat.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		return nil, errors.Join(fmt.Errorf("%s is a pipe, and a snapshot is read twice: save it in a file", f.path), in.Close())
	}
	buffered := bufio.NewReaderSize(in, 1<<16)
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, errors.Join(err, in.Close())
		}
		return struct {
			io.Reader
			io.Closer
		}{unpacked, in}, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{buffered, in}, nil
}

// decode runs the pickle, numbers the stacks and gives each entry of a trace to visit. It returns the top of it.
func (f *file) decode(known *stacks, visit func(e *entry, device int) error) (d *decoder, top pickle.Value, err error) {
	in, err := f.open()
	if err != nil {
		return nil, pickle.Value{}, err
	}
	defer in.Close()
	d = &decoder{Decoder: pickle.NewDecoder(in, Budget, wellKnown[:])}
	var e entry
	var passed [maxDevices]int64
	var scopesOf int
	d.Entry = func(items []pickle.Value, device int) error {
		if err := d.readEntry(items, &e, known); err != nil {
			return err
		}
		if e.action == actionUserDefined && (len(d.scopes) == 0 || device == scopesOf) { // each device has them all
			scopesOf = device
			if err := d.readScope(&e, known); err != nil {
				return err
			}
		}
		if device >= maxDevices {
			return fmt.Errorf("a trace of device %d: more than %d devices are not read", device, maxDevices)
		}
		if passed[device]++; passed[device] <= f.skip {
			return nil
		}
		return visit(&e, device)
	}
	top, err = d.Decode()
	if err != nil {
		return nil, pickle.Value{}, fmt.Errorf("%s: %w", f.path, err)
	}
	if top.Kind != pickle.KindList && d.Dict(top) == nil {
		return nil, pickle.Value{}, fmt.Errorf("%s is not a torch snapshot: the pickle's outermost value is neither a dictionary nor a list", f.path)
	}
	return d, top, nil
}

func (d *decoder) readEntry(items []pickle.Value, e *entry, known *stacks) (err error) {
	*e = entry{}
	for i := 0; i+1 < len(items); i += 2 {
		v := items[i+1]
		if items[i].Kind != pickle.KindText {
			continue
		}
		switch items[i].N {
		case keyAction:
			if e.action = actionOther; v.Kind == pickle.KindText {
				e.action = actionOf(v.N)
			}
		case keyAddr, keyDeviceFree:
			e.addr = v.N
		case keySize:
			e.size = v.N
		case keyBlock:
			e.block = v.N
		case keyStream:
			e.stream = v.N
		case keyTime:
			e.timeUS = v.Integer()
		case keyFrames:
			if e.stack, err = known.number(d.Decoder, v); err != nil {
				return err
			}
		case keyMetadata:
			if d.Text(v) != "" {
				e.metadata = v.N + 1
			}
		case keyPool, keySegmentPool:
			e.pool = d.poolOf(v)
		}
	}
	if e.size > 1<<60 || e.block > 1<<60 || e.addr > 1<<62 {
		return fmt.Errorf("an entry of %d bytes at %#x", e.size, e.addr)
	}
	return nil
}

// readScope keeps the begin or end of a scope of the job that is an entry with one frame, of torch 2.4: START or END for
// a function, and the name of the scope for a file.
func (d *decoder) readScope(e *entry, known *stacks) error {
	if e.stack == 0 {
		return nil
	}
	text := known.texts[known.nodes.of(e.stack).frame-1]
	stage, name, found := strings.Cut(text, " (")
	name, found2 := strings.CutSuffix(name, ":0)")
	if !found || !found2 || stage != "START" && stage != "END" {
		return nil
	}
	d.scopes = append(d.scopes, annotation{name, stage == "START", e.timeUS})
	return d.Keep(keptScope)
}

func (d *decoder) poolOf(v pickle.Value) (pool [2]uint64) {
	if items := d.Items(v); len(items) == 2 {
		pool = [2]uint64{items[0].N, items[1].N}
	}
	return pool
}

// segments are those of the snapshot, as they were when it was taken. Torch 1.13 writes them alone, and so does
// torch.cuda.memory_snapshot.
func (d *decoder) segments(top pickle.Value) ([]segment, error) {
	var all []segment
	listed := top
	if top.Kind == pickle.KindDict {
		listed = d.Field(d.Dict(top), "segments")
	}
	for _, v := range d.Items(listed) {
		found := d.Dict(v)
		if found == nil {
			return nil, errors.New("a segment that is no dictionary")
		}
		s := segment{
			device:     int(d.Field(found, "device").N),
			addr:       d.Field(found, "address").N,
			size:       d.Field(found, "total_size").N,
			stream:     d.Field(found, "stream").N,
			small:      d.Text(d.Field(found, "segment_type")) == "small",
			expandable: d.Field(found, "is_expandable").N == 1,
		}
		s.pool = d.poolOf(d.Field(found, "segment_pool_id"))
		if s.device < 0 || s.device >= maxDevices || s.size == 0 || s.size > 1<<60 || s.addr > 1<<62 {
			return nil, fmt.Errorf("a segment of %d bytes at %#x of device %d", s.size, s.addr, s.device)
		}
		if err := d.Keep(keptSegment); err != nil {
			return nil, err
		}
		if err := d.blocks(&s, d.Field(found, "blocks")); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// blocks reads those of a segment. Torch before 2.0 leaves out their addresses: they tile it.
func (d *decoder) blocks(s *segment, v pickle.Value) error {
	at := s.addr
	for _, v := range d.Items(v) {
		found := d.Dict(v)
		b := block{addr: at, size: d.Field(found, "size").N, requested: d.Field(found, "requested_size").N, frames: d.Field(found, "frames")}
		if addr := d.Field(found, "address"); addr.Kind == pickle.KindInt {
			b.addr = addr.N
		}
		state := d.Text(d.Field(found, "state"))
		b.live, b.pending = state == "active_allocated", state == "active_pending_free" || state == "active_awaiting_free"
		if history := d.Items(d.Field(found, "history")); len(history) > 0 {
			last := d.Dict(history[0])
			if b.requested == 0 {
				b.requested = d.Field(last, "real_size").N
			}
			if b.frames.Kind == pickle.KindNone {
				b.frames = d.Field(last, "frames")
			}
		}
		if b.addr < at || b.size == 0 || b.size > s.addr+s.size-b.addr || b.addr > s.addr+s.size {
			return fmt.Errorf("a block of %d bytes at %#x, in a segment of %d at %#x", b.size, b.addr, s.size, s.addr)
		}
		if b.requested == 0 || b.requested > b.size {
			b.requested = b.size
		}
		if err := d.Keep(keptBlock); err != nil {
			return err
		}
		at = b.addr + b.size
		s.blocks = append(s.blocks, b)
	}
	return nil
}

// annotations are those of the job, in their order.
func (d *decoder) annotations(top pickle.Value) []annotation {
	all := d.scopes
	for _, v := range d.Items(d.Field(d.Dict(top), "external_annotations")) {
		found := d.Dict(v)
		stage := d.Text(d.Field(found, "stage"))
		if stage == "START" || stage == "END" {
			all = append(all, annotation{d.Text(d.Field(found, "name")), stage == "START", d.Field(found, "time_us").Integer()})
		}
	}
	return all
}
