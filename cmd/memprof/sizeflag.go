package main

import "github.com/memprof/memprof/report"

// sizeFlag is a flag in bytes, given as people write sizes.
type sizeFlag int64

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return report.FormatSize(int64(*s))
}

func (s *sizeFlag) Set(text string) error {
	bytes, err := report.ParseSize(text)
	*s = sizeFlag(bytes)
	return err
}

// Type is the word that stands for the value in the help.
func (s *sizeFlag) Type() string { return "size" }
