package snapshot

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/memprof/memprof/analysis/snapshot/pickle"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace/dataset"
)

// Process describes the process that Import wrote for one device of one file.
type Process struct {
	Name    string `json:"process"` // of the recording's process
	File    string `json:"file"`
	Device  int    `json:"device"`
	Entries int64  `json:"events"` // of its trace
	// Blocks and Bytes existed before the first entry: torch did not keep their begin, so earlier peaks are
	// unknown.
	Blocks int64 `json:"blocks_before"`
	Bytes  int64 `json:"reserved_before"` // of memory
	Odd    int64 `json:"contradictions"`  // entries and blocks that contradict others, and were left out
}

// ErrEmpty is the error of a snapshot that holds neither entries nor segments.
var ErrEmpty = errors.New("the snapshot is empty: call torch.cuda.memory._record_memory_history() before the allocations that it should have")

// Import writes the snapshots as one recording into dir, which exists. Several files are ranks
// in their order. Errors name the file, and the byte where they are about its content; no part is
// left after one.
func Import(dir string, files []string, version string) (all []Process, err error) {
	info := &dataset.Info{
		ID: dataset.NewRunID(), Version: version, Options: map[string]string{"import": "torch-snapshot", "allocator": "native"},
		Command: append([]string{"memprof", "import"}, files...),
	}
	var ranks []*importer
	defer func() {
		if err != nil {
			for _, i := range ranks {
				err = errors.Join(err, i.remove())
			}
		}
	}()
	first := int64(math.MaxInt64)
	for rank, path := range files {
		i := &importer{dir: dir, info: info, file: &file{path: path}, rank: -1, world: -1, first: math.MaxInt64, stacks: newStacks(), contexts: mostContexts}
		if len(files) > 1 {
			i.rank, i.world = rank, len(files)
		}
		ranks = append(ranks, i)
		if err := i.survey(); err != nil {
			return nil, err
		}
		first = min(first, i.first)
	}
	if 0 < first && first < math.MaxInt64 { // torch before 2.1 notes no times
		info.Start = startOf(first)
	}
	for _, i := range ranks {
		i.first = first // the ranks have one clock
		made, err := i.write()
		if err != nil {
			return nil, err
		}
		all = append(all, made...)
	}
	return all, dataset.WriteInfo(dir, info)
}

func startOf(first int64) time.Time { return time.UnixMicro(first).UTC() }

// importer is the import of one file.
type importer struct {
	dir         string
	info        *dataset.Info
	file        *file
	rank, world int
	devices     [maxDevices]*opening
	layouts     [maxDevices]*layout
	settings    torchalloc.Settings
	kept        *dataset.AllocatorSettings // the same, for run.json
	annotations []annotation
	first       int64 // time of the first entry or annotation, µs
	stacks      *stacks
	texts       []string // of the pickle, which metadata numbers
	contexts    int64    // how many more the requests may have
}

// remove removes the parts that were written, complete or not.
func (i *importer) remove() error {
	var failed []error
	for _, l := range i.layouts {
		if l == nil {
			continue
		}
		_ = l.out.end() // what failed is known
		l.w.Abandon()
		for _, part := range l.w.Parts() {
			failed = append(failed, os.Remove(part.Path))
		}
	}
	return errors.Join(failed...)
}

// write is the second pass: it writes the events. A file that has changed since the first one is an error, or entries that
// contradict others.
func (i *importer) write() ([]Process, error) {
	// A device without entries still has its opening.
	for device, o := range i.devices {
		if o != nil && o.entries == 0 {
			if err := i.begin(device); err != nil {
				return nil, err
			}
		}
	}
	if _, _, err := i.decode(i.put); err != nil {
		return nil, err
	}
	return i.finish()
}

// put writes an entry.
func (i *importer) put(e *entry) error {
	switch {
	case i.devices[e.device] == nil:
		return fmt.Errorf("%s: it was changed while it was read", i.file.path)
	case i.layouts[e.device] == nil:
		if err := i.begin(int(e.device)); err != nil {
			return err
		}
	}
	l := i.layouts[e.device]
	if err := l.until(e.timeUS); err != nil {
		return err
	}
	return l.entry(e)
}

// survey is the first pass: it finds the opening, the settings and the annotations.
func (i *importer) survey() error {
	d, top, err := i.decode(i.note)
	if err != nil {
		return err
	}
	i.texts = d.Texts()
	segments, err := d.segments(top)
	if err != nil {
		return fmt.Errorf("%s: %w", i.file.path, err)
	}
	byDevice := map[int][]segment{}
	for _, s := range segments {
		i.deviceOf(s.device)
		for at := range s.blocks {
			if s.blocks[at].stack, err = i.stacks.number(d.Decoder, s.blocks[at].frames); err != nil {
				return fmt.Errorf("%s: %w", i.file.path, err)
			}
		}
		byDevice[s.device] = append(byDevice[s.device], s)
	}
	empty := true
	for device, o := range i.devices {
		if o != nil {
			empty = false
			o.finish(byDevice[device])
		}
	}
	if empty {
		return fmt.Errorf("%s: %w", i.file.path, ErrEmpty)
	}
	i.annotations = d.annotations(top)
	for _, a := range i.annotations {
		i.first = min(i.first, a.timeUS)
	}
	i.settings, i.kept = d.settings(top)
	return nil
}

// decode decodes the file, and gives its entries to take on another goroutine meanwhile.
func (i *importer) decode(take func(*entry) error) (d *decoder, top pickle.Value, err error) {
	taken := newPipe(take)
	d, top, err = i.file.decode(i.stacks, func(e *entry, device int) error {
		e.device = int32(device)
		return taken.put(e)
	})
	if failed := taken.end(); failed != nil {
		err = failed
	}
	return d, top, err
}

// note surveys an entry.
func (i *importer) note(e *entry) error {
	i.first = min(i.first, e.timeUS)
	o := i.deviceOf(int(e.device))
	if o.entry(e); o.held() > mostHeld {
		return fmt.Errorf("%s: device %d has more than %d blocks and addresses of large requests", i.file.path, e.device, mostHeld)
	}
	return nil
}

func (i *importer) deviceOf(device int) *opening {
	if i.devices[device] == nil {
		i.devices[device] = newOpening()
	}
	return i.devices[device]
}

// nameOf is the process's name of a device: with several files, the first device has the rank's.
func (i *importer) nameOf(device int) string {
	if i.rank < 0 {
		return "gpu" + strconv.Itoa(device)
	}
	for first, o := range i.devices {
		if o == nil {
			continue
		}
		if first == device {
			return "rank" + strconv.Itoa(i.rank)
		}
		break
	}
	return fmt.Sprintf("rank%d-gpu%d", i.rank, device)
}

// begin starts a device's process with its opening.
func (i *importer) begin(device int) error {
	o := i.devices[device]
	meta := dataset.ProcessMeta{RunID: i.info.ID, Name: i.nameOf(device), Rank: i.rank, LocalRank: -1, WorldSize: i.world, Frameworks: "torch"}
	l := &layout{
		w: dataset.NewWriter(i.dir, meta, dataset.WriterOptions{NoSync: true}), device: int32(device), settings: i.settings, base: i.first,
		arenas: map[arenaKey]int32{}, stacks: i.stacks, texts: i.texts, written: map[int64]int64{}, contexts: map[[2]uint64]int32{}, unproven: map[uint64]bool{}, left: &i.contexts, marks: newMarks(i.annotations),
		halves: o.halves, odd: o.odd, pools: o.pools, emptied: o.emptied, asked: o.asked, sized: o.sized, freers: o.freers, grads: gradients{live: map[uint64]int64{}},
	}
	l.out = newAppender(l.w)
	i.layouts[device] = l
	for _, m := range o.memory {
		if err := l.take(m.from, m.to, m.stream, m.class, 0); err != nil {
			return err
		}
	}
	for _, b := range slices.Backward(o.blocks) { // the size of a block depends on the next one
		l.next, l.older = b.behind, true
		if err := l.begin(b.addr, b.size, b.requested, b.stream, b.stack, 0); err != nil {
			return err
		}
	}
	l.next, l.older = 0, false
	defer func() { l.opening, l.exact = l.out.next, max(l.exact, l.out.next) }()
	for _, b := range o.blocks {
		if found := l.blocks.get(b.addr); found != nil && b.pending {
			l.freeing = *found
			l.waiting = &l.freeing
			if err := l.finished(false); err != nil {
				return err
			}
		}
	}
	return nil
}

func (i *importer) finish() ([]Process, error) {
	var all []Process
	for device, l := range i.layouts {
		if l == nil {
			continue
		}
		if err := l.finished(l.halves); err != nil {
			return nil, err
		}
		if err := l.until(math.MaxInt64); err != nil {
			return nil, err
		}
		if err := l.nameOlder(); err != nil {
			return nil, err
		}
		o := i.devices[device]
		p := Process{Name: i.nameOf(device), File: i.file.path, Device: device, Entries: o.entries, Blocks: int64(len(o.blocks)), Odd: l.odd}
		for _, m := range o.memory {
			p.Bytes += int64(m.to - m.from)
		}
		if err := l.out.end(); err != nil {
			return nil, err
		}
		if err := l.w.Finish(dataset.Ending{State: dataset.StateClosed}); err != nil {
			return nil, err
		}
		i.info.Imported = append(i.info.Imported, dataset.Imported{
			Process: p.Name, Format: "torch-snapshot", Opening: l.opening, Blocks: p.Blocks, Reserved: p.Bytes,
			Exact: l.exact, ExactNS: l.exactTime, Odd: p.Odd, Iterations: l.marks.iteration, Settings: i.kept,
		})
		all = append(all, p)
	}
	return all, nil
}

// settings are those of placement that the snapshot has, torch's own where it has none; kept are the same for
// run.json, nil where it has none.
func (d *decoder) settings(top pickle.Value) (s torchalloc.Settings, kept *dataset.AllocatorSettings) {
	s = torchalloc.DefaultSettings()
	found := d.Dict(d.Field(d.Dict(top), "allocator_settings"))
	if found == nil {
		return s, nil
	}
	s.Expandable = d.Field(found, "expandable_segments").N == 1
	if v := d.Field(found, "max_split_size"); v.Kind == pickle.KindInt && v.Integer() > 0 {
		s.MaxSplit = v.N
	}
	divisions := d.Dict(d.Field(found, "roundup_power2_divisions"))
	for at := range s.Roundup {
		s.Roundup[at] = d.Field(divisions, strconv.Itoa(1<<at)).N
	}
	kept = &dataset.AllocatorSettings{
		Text: clean(d.Text(d.Field(found, "PYTORCH_CUDA_ALLOC_CONF"))), Expandable: s.Expandable, MaxSplit: -1, Roundup: s.Roundup[:],
	}
	if s.MaxSplit <= math.MaxInt64 {
		kept.MaxSplit = int64(s.MaxSplit)
	}
	return s, kept
}
