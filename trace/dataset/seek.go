package dataset

import "sort"

// NewReaderAt starts at an event, which it finds by the row groups of the parts, and reads no opening rows. It supposes
// that no rows are missing before the event in its part. Close the Reader after use.
func (p *Process) NewReaderAt(seq int64) (*Reader, error) {
	return p.newReader(max(0, p.partOf(seq)), seq)
}

// NewReaderOfPart starts at the opening rows of the part that has an event.
func (p *Process) NewReaderOfPart(seq int64) (*Reader, error) {
	return p.newReader(max(0, p.partOf(seq)), -1)
}

// PartStarts are the first events of the parts.
func (p *Process) PartStarts() []int64 {
	starts := make([]int64, len(p.Parts))
	for i := range p.Parts {
		starts[i] = p.Parts[i].FirstSeq
	}
	return starts
}

// partOf is the index of the part that has an event, -1 if it lies before all.
func (p *Process) partOf(seq int64) int {
	return sort.Search(len(p.Parts), func(i int) bool { return p.Parts[i].FirstSeq > seq }) - 1
}

// seek has a decoder whose part is open skip the rows before an event.
func (d *decoder) seek(seq int64) {
	part := &d.parts[0]
	d.skip = part.OpeningRows + max(0, min(seq-part.FirstSeq, part.Events))
	for d.group < d.pq.NumRowGroups() {
		rows := d.pq.MetaData().RowGroup(d.group).NumRows()
		if d.skip < rows {
			return
		}
		d.skip -= rows
		d.group++
	}
}
