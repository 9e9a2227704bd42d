package outfile

// Possible returns nil: the files of a browser's page are in its memory.
func Possible(string) error { return nil }
