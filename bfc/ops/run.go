package ops

import (
	"fmt"
	"io"

	"github.com/memprof/memprof/bfc"
)

// Result is what came of an operation. Sizes and offsets are in bytes.
type Result struct {
	Verb      Verb
	Name      string // "" for GC and Iteration
	OK        bool   // false: a request was refused, or a name freed whose request was
	Region    int    // index by address, at that time; of Alloc and Free that are OK
	Offset    uint64 // in the region; of Alloc and Free that are OK
	Requested uint64 // of Alloc, and Free that is OK
	Provided  uint64 // bytes of the chunk; of Alloc and Free that are OK
	Released  uint64 // of GC and Iteration: bytes that were mapped
	Mapped    uint64 // of Iteration: bytes mapped ahead
}

// name is what was last done to a name, and on which line.
type name struct {
	state state
	line  int
	addr  uint64 // of the block in use
}

type state uint8

const (
	inUse state = iota
	refused
	freed
)

// Run has a do all operations of a file, and returns what came of each. An error is that
// of the file, as Reader.Read returns it: what was done until then remains done.
func Run(a *bfc.Allocator, file *Reader) ([]Result, error) {
	var results []Result
	names := map[string]name{}
	for {
		op, err := file.Read()
		if err == io.EOF {
			return results, nil
		}
		if err != nil {
			return nil, err
		}
		result, err := do(a, names, op)
		if err != nil {
			return nil, file.errorAt(op.Line, err)
		}
		results = append(results, result)
	}
}

func do(a *bfc.Allocator, names map[string]name, op Op) (Result, error) {
	switch op.Verb {
	case Alloc:
		return alloc(a, names, op)
	case Free:
		return free(a, names, op)
	case Iteration:
		a.EndIteration()
		result := Result{Verb: Iteration, OK: true}
		result.Released, result.Mapped = a.Trim()
		return result, nil
	}
	return Result{Verb: GC, OK: true, Released: a.CollectGarbage()}, nil
}

func alloc(a *bfc.Allocator, names map[string]name, op Op) (Result, error) {
	if old, ok := names[op.Name]; ok && old.state == inUse {
		return Result{}, fmt.Errorf("name %q is in use since line %d: free it first, or use another", op.Name, old.line)
	}
	block, ok := a.Alloc(op.Size)
	if !ok {
		names[op.Name] = name{state: refused, line: op.Line}
		return Result{Verb: Alloc, Name: op.Name, Requested: op.Size}, nil
	}
	names[op.Name] = name{line: op.Line, addr: block.Addr}
	return placed(a, op, block), nil
}

func free(a *bfc.Allocator, names map[string]name, op Op) (Result, error) {
	old, ok := names[op.Name]
	if !ok {
		return Result{}, fmt.Errorf("free of %q, which was never allocated", op.Name)
	}
	if old.state == freed {
		return Result{}, fmt.Errorf("free of %q, which was freed on line %d", op.Name, old.line)
	}
	names[op.Name] = name{state: freed, line: op.Line}
	if old.state == refused {
		return Result{Verb: Free, Name: op.Name}, nil
	}
	block, err := a.Free(old.addr)
	return placed(a, op, block), err
}

// placed says where a block is, or was until now.
func placed(a *bfc.Allocator, op Op, block bfc.Block) Result {
	region, offset, _ := a.Locate(block.Addr)
	return Result{
		Verb: op.Verb, Name: op.Name, OK: true,
		Region: region, Offset: offset, Requested: block.Requested, Provided: block.Size,
	}
}
