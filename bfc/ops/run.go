package ops

import (
	"fmt"
	"io"

	"github.com/memprof/memprof/bfc"
)

// Result is the result of an operation. Sizes and offsets are in bytes.
type Result struct {
	Verb      Verb
	Name      string // "" for GC and Iteration
	OK        bool   // false: a request was refused, or the free of one that was refused
	Region    int    // index by address, at that time; of Alloc and Free that are OK
	Offset    uint64 // in the region; of Alloc and Free that are OK
	Requested uint64 // of Alloc, and Free that is OK
	Provided  uint64 // bytes of the chunk; of Alloc and Free that are OK
	Released  uint64 // of GC and Iteration: bytes that were mapped
}

// name is the state of a name, and the line of the last operation on it.
type name struct {
	refused bool
	line    int
	addr    uint64 // of the block in use
}

const (
	// maxNames is the most memory in bytes for names that are in use, or were refused and not freed
	// since: 2.5 million short ones.
	maxNames = 256 << 20
	// nameCost is the memory of a name without its own bytes.
	nameCost = 96
	// freedKept is how many of the last freed names are kept with their lines, for errors.
	freedKept = 1 << 16
)

// heap is an allocator and the names of its blocks.
type heap struct {
	*bfc.Allocator
	names map[string]name
	bytes int64 // of the names

	freed     map[string]int // the line of each of those freed last
	order     []string       // of freed, from next on
	next      int
	forgotten bool // more names were freed than are in freed
}

// Run runs all operations of a file on a, and calls visit with the result of each. It returns the error
// of Reader.Read or of visit; operations before that have been done. Host memory is proportional to the
// blocks in use, not to the number of operations; it is an error if names that are in use, or were
// refused and not freed since, have more than 256 MiB.
func Run(a *bfc.Allocator, file *Reader, visit func(*Result) error) error {
	h := &heap{Allocator: a, names: map[string]name{}, freed: map[string]int{}}
	for {
		op, err := file.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		result, err := h.do(op)
		if err != nil {
			return file.errorAt(op.Line, err)
		}
		if err := visit(&result); err != nil {
			return err
		}
	}
}

func (h *heap) do(op Op) (Result, error) {
	switch op.Verb {
	case Alloc:
		return h.alloc(op)
	case Free:
		return h.free(op)
	case Iteration:
		h.EndIteration()
		result := Result{Verb: Iteration, OK: true}
		result.Released = h.Trim()
		return result, nil
	}
	return Result{Verb: GC, OK: true, Released: h.CollectGarbage()}, nil
}

func (h *heap) alloc(op Op) (Result, error) {
	old, known := h.names[op.Name]
	if known && !old.refused {
		return Result{}, fmt.Errorf("name %q is in use since line %d: free it first, or use another", op.Name, old.line)
	}
	if !known {
		if h.bytes += int64(len(op.Name)) + nameCost; h.bytes > maxNames {
			return Result{}, fmt.Errorf("the names of %d blocks in use take more than %d bytes", len(h.names), maxNames)
		}
	}
	block, ok := h.Alloc(op.Size)
	h.names[op.Name] = name{refused: !ok, line: op.Line, addr: block.Addr}
	if !ok {
		return Result{Verb: Alloc, Name: op.Name, Requested: op.Size}, nil
	}
	return h.placed(op, block), nil
}

func (h *heap) free(op Op) (Result, error) {
	old, ok := h.names[op.Name]
	if !ok {
		return Result{}, h.notInUse(op.Name)
	}
	delete(h.names, op.Name)
	h.bytes -= int64(len(op.Name)) + nameCost
	h.keepFreed(op)
	if old.refused {
		return Result{Verb: Free, Name: op.Name}, nil
	}
	block, err := h.Free(old.addr)
	return h.placed(op, block), err
}

func (h *heap) keepFreed(op Op) {
	if _, known := h.freed[op.Name]; !known {
		if len(h.order) < freedKept {
			h.order = append(h.order, op.Name)
		} else {
			delete(h.freed, h.order[h.next])
			h.order[h.next], h.next, h.forgotten = op.Name, (h.next+1)%freedKept, true
		}
	}
	h.freed[op.Name] = op.Line
}

func (h *heap) notInUse(name string) error {
	line, freed := h.freed[name]
	switch {
	case freed:
		return fmt.Errorf("free of %q, which was freed on line %d", name, line)
	case h.forgotten:
		return fmt.Errorf("free of %q, which is not in use", name)
	}
	return fmt.Errorf("free of %q, which was never allocated", name)
}

// placed returns the result of an operation on a block, with the place of the block.
func (h *heap) placed(op Op, block bfc.Block) Result {
	region, offset, _ := h.Locate(block.Addr)
	return Result{
		Verb: op.Verb, Name: op.Name, OK: true,
		Region: region, Offset: offset, Requested: block.Requested, Provided: block.Size,
	}
}
