package oomtext

import (
	"strings"
)

// Dump is the state of a BFC allocator, as TensorFlow and XLA log it when a request fails.
type Dump struct {
	Bins []Bin // those that have chunks, by size

	Limit, InUse, PeakInUse int64 // of its statistics
	Regions                 int64 // bytes of its regions; 0 if the dump does not tell
	Unmapped                int64 // bytes that the limit leaves; -1 if the dump does not tell

	Chunks, FreeChunks int   // that are listed, each with its address
	FreeListed         int64 // bytes of the listed free ones
	LargestFree        int64 // of the listed free ones, 0 without
	LiveBySize         int64 // bytes of the summary of chunks in use
	Requested          int64 // bytes of chunks in use that were asked for, by the bins; 0 if there are none
}

// Bin holds the chunks of its size, up to twice as large.
type Bin struct {
	Size, Chunks int64
	Live         int64 // bytes of the chunks in use
}

// Free is what the allocator has and nobody uses.
func (d *Dump) Free() int64 {
	switch {
	case d.Regions > 0:
		return max(d.Regions-d.InUse, 0)
	case d.Limit > 0:
		return max(d.Limit-d.InUse, 0)
	}
	return d.FreeListed
}

// Internal is what the chunks in use are larger than their requests, by the bins; -1 if they do not tell.
func (d *Dump) Internal() int64 {
	var live int64
	for i := range d.Bins {
		live += d.Bins[i].Live
	}
	if live == 0 || d.Requested == 0 {
		return -1
	}
	return max(live-d.Requested, 0)
}

// dumps reads the first whole dump of a log.
type dumps struct {
	reading  Dump
	any      bool // reading has something
	complete *Dump
}

// most bins that are kept: an allocator has 21.
const mostBins = 64

// line reads a line without its prefixes.
func (d *dumps) line(line []byte) {
	if d.complete != nil || len(line) == 0 || len(line) > 1<<10 {
		return
	}
	text := string(line)
	r := &d.reading
	switch {
	case strings.HasPrefix(text, "Bin ("):
		d.bin(text)
	case strings.HasPrefix(text, "Chunk at "), strings.HasPrefix(text, "InUse at "):
		r.Chunks++
		d.any = true
	case strings.HasPrefix(text, "Free at "), strings.HasPrefix(text, "Free  at "):
		if size := after(text, " of size "); size > 0 {
			r.Chunks, r.FreeChunks, r.FreeListed, r.LargestFree = r.Chunks+1, r.FreeChunks+1, r.FreeListed+size, max(r.LargestFree, size)
			d.any = true
		}
	case strings.Contains(text, " Chunks of size "):
		if n := after(" "+text, " "); n > 0 {
			if size := after(text, " of size "); size > 0 && n < 1<<40/size+1<<20 {
				r.LiveBySize += n * size
			}
		}
	case strings.HasPrefix(text, "total_region_allocated_bytes_:"), strings.HasPrefix(text, "Total bytes in pool:"):
		r.Regions, r.Unmapped = after(text, ": "), after(text, "available bytes: ")
	case strings.HasPrefix(text, "Limit:"):
		r.Limit = after(text, "Limit:")
		d.any = true
	case strings.HasPrefix(text, "InUse:"):
		r.InUse = after(text, "InUse:")
	case strings.HasPrefix(text, "MaxInUse:"):
		r.PeakInUse = after(text, "MaxInUse:")
	case strings.HasPrefix(text, "MaxAllocSize:"):
		if d.any && r.Limit > 0 && r.InUse <= r.Limit {
			whole := *r
			if whole.Regions == 0 && whole.Unmapped == 0 {
				whole.Unmapped = -1
			}
			d.complete = &whole
		}
		d.reading, d.any = Dump{}, false
	}
}

// bin reads a line of a bin, in the forms of all versions.
func (d *dumps) bin(text string) {
	b := Bin{Size: after(text, "Bin ("), Chunks: after(text, "Total Chunks: ")}
	if b.Size <= 0 || b.Chunks <= 0 || len(d.reading.Bins) >= mostBins {
		return
	}
	d.any = true
	b.Live = sizeBefore(text, " in use in bin")
	d.reading.Requested += sizeBefore(text, " client-requested in use in bin")
	d.reading.Bins = append(d.reading.Bins, b)
}

// after returns the whole number behind a text, 0 without one.
func after(text, what string) int64 {
	_, rest, found := strings.Cut(text, what)
	if !found {
		return 0
	}
	rest = strings.TrimLeft(rest, " \t")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	return or(wholeBytes(rest[:end]), 0)
}

// sizeBefore returns the size in front of a text, 0 without one.
func sizeBefore(text, what string) int64 {
	head, _, found := strings.Cut(text, what)
	if !found {
		return 0
	}
	word := head[strings.LastIndexByte(head, ' ')+1:]
	return or(parseSize(word), 0)
}

// finding makes an error of a dump. The request is the one that the log names first; the text around it says where it is.
func (d *Dump) finding(asked, around *Finding) *Finding {
	f := &Finding{Framework: TensorFlow, class: withFigures}
	if around != nil {
		f.Line, f.Vendor = around.Line, around.Vendor
	}
	if asked != nil {
		f.Requested, f.Line = asked.Requested, asked.Line
	}
	f.Total, f.Allocated, f.ReservedUnallocated = known(d.Limit), known(d.InUse), known(d.Free())
	if d.Unmapped >= 0 {
		f.Available = known(d.Unmapped)
	}
	f.Dump = d
	return f
}
