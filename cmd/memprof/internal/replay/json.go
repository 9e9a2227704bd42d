package replay

import (
	"bufio"
	"fmt"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/bfc"
)

// resultJSON is one operation; which of its fields are there depends on what came of it.
type resultJSON struct {
	Op        Verb    `json:"op"`
	Name      *string `json:"name,omitempty"`
	OK        bool    `json:"ok"`
	Region    *int    `json:"region,omitempty"`
	Offset    *uint64 `json:"offset,omitempty"`
	Requested *uint64 `json:"requested,omitempty"`
	Provided  *uint64 `json:"provided,omitempty"`
	Released  *uint64 `json:"released,omitempty"`
}

func toJSON(r *Result) resultJSON {
	out := resultJSON{Op: r.Verb, OK: r.OK}
	if r.Verb == GC || r.Verb == Iteration {
		out.Released = &r.Released
		return out
	}
	out.Name = &r.Name
	if r.OK {
		out.Region, out.Offset, out.Provided = &r.Region, &r.Offset, &r.Provided
	}
	if r.OK || r.Verb == Alloc {
		out.Requested = &r.Requested
	}
	return out
}

type chunkJSON struct {
	Offset    uint64 `json:"offset"`
	Size      uint64 `json:"size"`
	Free      bool   `json:"free"`
	Requested uint64 `json:"requested"` // 0 if free
	ID        int64  `json:"id"`        // -1 if free
}

type regionJSON struct {
	Size   uint64      `json:"size"`
	Chunks []chunkJSON `json:"chunks"`
}

type statsJSON struct {
	bfc.Stats
	LargestFree   uint64  `json:"largest_free"`
	Fragmentation float64 `json:"fragmentation"`
}

// JSON writes one operation, and one region, a line: results of millions of
// operations are never encoded as a whole.
func JSON(w *bufio.Writer, a *bfc.Allocator, results *Results) error {
	w.WriteString(`{"ops":[`)
	err := results.each(func(i int, r *Result) error { return writeElement(w, i, toJSON(r)) })
	if err != nil {
		return err
	}
	w.WriteString("],\n\"regions\":[")
	for i, region := range a.Regions() {
		out := regionJSON{Size: region.Size}
		for _, c := range region.Chunks {
			out.Chunks = append(out.Chunks, chunkJSON{c.Offset, c.Size, c.Free(), c.Requested, c.ID})
		}
		if err := writeElement(w, i, out); err != nil {
			return err
		}
	}
	stats, err := plain.JSON(statsJSON{a.Stats(), a.LargestFree(), a.Fragmentation()})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "],\n\"stats\":%s,\n\"next_region\":%d}\n", stats, a.NextRegion())
	return err
}

func writeElement(w *bufio.Writer, i int, value any) error {
	separator := "\n"
	if i > 0 {
		separator = ",\n"
	}
	w.WriteString(separator)
	text, err := plain.JSON(value)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
