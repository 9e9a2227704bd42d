package replay

import (
	"bufio"
	"fmt"
	"math"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/bfc/ops"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// formatSize is units.FormatSize for sizes up to 2^64-1.
func formatSize(bytes uint64) string {
	if bytes > math.MaxInt64 {
		return fmt.Sprintf("%.1f EiB", math.Ldexp(float64(bytes), -60))
	}
	return units.FormatSize(int64(bytes))
}

// widestName is up to where names widen their column, in characters.
const widestName = 32

// Text leaves errors of writing to the Flush at the end.
func Text(w *bufio.Writer, a *bfc.Allocator, results *Results) error {
	names, verbs := min(max(len("NAME"), results.names), widestName), max(len(ops.Alloc), results.verbs)
	fmt.Fprintf(w, "%-*s  %-*s  %10s  %10s  WHERE\n", verbs, "OP", names, "NAME", "REQUESTED", "PROVIDED")
	err := results.each(func(_ int, r *ops.Result) error {
		requested, provided, where := "", "", fmt.Sprintf("region %d + %d", r.Region, r.Offset)
		switch {
		case r.Verb == ops.GC:
			where = "released " + formatSize(r.Released)
		case r.Verb == ops.Iteration:
			where = "unmapped " + formatSize(r.Released)
		case r.OK:
			requested, provided = formatSize(r.Requested), formatSize(r.Provided)
		case r.Verb == ops.Alloc:
			requested, where = formatSize(r.Requested), "refused"
		default:
			where = "nothing: its request was refused"
		}
		_, err := fmt.Fprintf(w, "%-*s  %-*s  %10s  %10s  %s\n", verbs, r.Verb, names, plain.Text(r.Name), requested, provided, where)
		return err
	})
	if err != nil {
		return err
	}
	printOccupancy(w, a)
	s := a.Stats()
	fmt.Fprintf(w, "\nin use         %s, peak %s; %s, the largest of %s\n", formatSize(s.BytesInUse), formatSize(s.PeakBytesInUse),
		units.Counted(int64(s.NumAllocs), "allocation"), formatSize(s.LargestAlloc))
	fmt.Fprintf(w, "reserved       %s, peak %s; next region %s\n", formatSize(s.Reserved), formatSize(s.PeakReserved), formatSize(a.NextRegion()))
	fmt.Fprintf(w, "free           %s, the largest chunk of %s\n", formatSize(a.FreeBytes()), formatSize(a.LargestFree()))
	fmt.Fprintf(w, "fragmentation  %.1f%%\n", 100*a.Fragmentation())
	return nil
}

// printOccupancy draws each region over the whole width, however large it is.
func printOccupancy(w *bufio.Writer, a *bfc.Allocator) {
	const cells = 100
	regions := a.Regions()
	if len(regions) == 0 {
		fmt.Fprintln(w, "\nno regions")
		return
	}
	fmt.Fprintln(w, "\n* requested   x rounding and slack   _ free")
	for i, region := range regions {
		free := 0
		for _, c := range region.Chunks {
			if c.Free() {
				free++
			}
		}
		fmt.Fprintf(w, "region %d: %s, %s, %d of them free\n", i, formatSize(region.Size), units.Counted(int64(len(region.Chunks)), "chunk"), free)
		fmt.Fprintln(w, bfc.Picture(regions[i:i+1], cells))
	}
}
