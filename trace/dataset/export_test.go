package dataset

// KeyValues are the metadata that the part was, or would be, written with.
func (p *Part) KeyValues() [][2]string { return p.keyValues() }
