package snapshot

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Budget is how many bytes of memory reading a snapshot may take.
const Budget = 1 << 30

// entry is one action of a device's trace, as torch recorded it.
type entry struct {
	action   action
	device   int32
	addr     uint64
	size     uint64
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
	frames                value // of the decoder
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
func (f *file) decode(known *stacks, visit func(e *entry, device int) error) (d *decoder, top value, err error) {
	in, err := f.open()
	if err != nil {
		return nil, value{}, err
	}
	defer in.Close()
	d = newDecoder(in, Budget)
	var e entry
	var passed [maxDevices]int64
	var scopesOf int
	d.entry = func(d *decoder, items []value, device int) error {
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
	top, err = d.decode()
	if err != nil {
		return nil, value{}, fmt.Errorf("%s: %w", f.path, err)
	}
	if top.kind != kindList && d.dict(top) == nil {
		return nil, value{}, fmt.Errorf("%s is not a torch snapshot: the pickle's outermost value is neither a dictionary nor a list", f.path)
	}
	return d, top, nil
}

func (d *decoder) readEntry(items []value, e *entry, known *stacks) (err error) {
	*e = entry{}
	for i := 0; i+1 < len(items); i += 2 {
		v := items[i+1]
		if items[i].kind != kindText {
			continue
		}
		switch items[i].n {
		case keyAction:
			if e.action = actionOther; v.kind == kindText {
				e.action = actionOf(v.n)
			}
		case keyAddr, keyDeviceFree:
			e.addr = v.n
		case keySize:
			e.size = v.n
		case keyStream:
			e.stream = v.n
		case keyTime:
			e.timeUS = v.integer()
		case keyFrames:
			if e.stack, err = known.number(d, v); err != nil {
				return err
			}
		case keyMetadata:
			if d.textOf(v) != "" {
				e.metadata = v.n + 1
			}
		case keyPool, keySegmentPool:
			e.pool = d.poolOf(v)
		}
	}
	if e.size > 1<<60 || e.addr > 1<<62 {
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
	return d.keep(keptScope)
}

func (d *decoder) poolOf(v value) (pool [2]uint64) {
	if items := d.itemsOf(v); len(items) == 2 {
		pool = [2]uint64{items[0].n, items[1].n}
	}
	return pool
}

// segments are those of the snapshot, as they were when it was taken. Torch 1.13 writes them alone, and so does
// torch.cuda.memory_snapshot.
func (d *decoder) segments(top value) ([]segment, error) {
	var all []segment
	listed := top
	if top.kind == kindDict {
		listed = d.field(d.dict(top), "segments")
	}
	for _, v := range d.itemsOf(listed) {
		found := d.dict(v)
		if found == nil {
			return nil, errors.New("a segment that is no dictionary")
		}
		s := segment{
			device:     int(d.field(found, "device").n),
			addr:       d.field(found, "address").n,
			size:       d.field(found, "total_size").n,
			stream:     d.field(found, "stream").n,
			small:      d.textOf(d.field(found, "segment_type")) == "small",
			expandable: d.field(found, "is_expandable").n == 1,
		}
		s.pool = d.poolOf(d.field(found, "segment_pool_id"))
		if s.device < 0 || s.device >= maxDevices || s.size == 0 || s.size > 1<<60 || s.addr > 1<<62 {
			return nil, fmt.Errorf("a segment of %d bytes at %#x of device %d", s.size, s.addr, s.device)
		}
		if err := d.keep(keptSegment); err != nil {
			return nil, err
		}
		if err := d.blocks(&s, d.field(found, "blocks")); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// blocks reads those of a segment. Torch before 2.0 leaves out their addresses: they tile it.
func (d *decoder) blocks(s *segment, v value) error {
	at := s.addr
	for _, v := range d.itemsOf(v) {
		found := d.dict(v)
		b := block{addr: at, size: d.field(found, "size").n, requested: d.field(found, "requested_size").n, frames: d.field(found, "frames")}
		if addr := d.field(found, "address"); addr.kind == kindInt {
			b.addr = addr.n
		}
		state := d.textOf(d.field(found, "state"))
		b.live, b.pending = state == "active_allocated", state == "active_pending_free" || state == "active_awaiting_free"
		if history := d.itemsOf(d.field(found, "history")); len(history) > 0 {
			last := d.dict(history[0])
			if b.requested == 0 {
				b.requested = d.field(last, "real_size").n
			}
			if b.frames.kind == kindNone {
				b.frames = d.field(last, "frames")
			}
		}
		if b.addr < at || b.size == 0 || b.size > s.addr+s.size-b.addr || b.addr > s.addr+s.size {
			return fmt.Errorf("a block of %d bytes at %#x, in a segment of %d at %#x", b.size, b.addr, s.size, s.addr)
		}
		if b.requested == 0 || b.requested > b.size {
			b.requested = b.size
		}
		if err := d.keep(keptBlock); err != nil {
			return err
		}
		at = b.addr + b.size
		s.blocks = append(s.blocks, b)
	}
	return nil
}

// annotations are those of the job, in their order.
func (d *decoder) annotations(top value) []annotation {
	all := d.scopes
	for _, v := range d.itemsOf(d.field(d.dict(top), "external_annotations")) {
		found := d.dict(v)
		stage := d.textOf(d.field(found, "stage"))
		if stage == "START" || stage == "END" {
			all = append(all, annotation{d.textOf(d.field(found, "name")), stage == "START", d.field(found, "time_us").integer()})
		}
	}
	return all
}
