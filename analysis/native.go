package analysis

// observed notes an arena of an allocator that is only observed.
func (ar *arena) observed() {
	if !ar.Unknown {
		return
	}
	d := ar.device
	d.native = append(d.native, ar)
	d.sums.Allocator = d.native[0].Info.Options["allocator"]
	d.result.Native, d.result.Chunks = &d.sums.Observed, nil
}
