package spool

// collecting says no: a browser's page has a copy of the spool.
func (p *Spool) collecting() (bool, error) { return false, nil }

// Alive says no, as collecting does.
func (p *Process) Alive() (bool, error) { return false, nil }
