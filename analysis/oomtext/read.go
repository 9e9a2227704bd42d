package oomtext

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
)

const (
	windowBytes = 64 << 10 // of text without white space that is searched at once
	errorBytes  = 12 << 10 // of the longest error: a line of 70 bytes for each process on the device
	lookBehind  = 256      // bytes of text before an error that its form may look at
	mostErrors  = 1 << 10  // that are read; a later one must say more
	lineBytes   = 16 << 10 // of a line that is cleaned at once; a longer one is taken in parts
)

// Read finds the error in a log and judges it, and what the log says of an engine's start. Each is nil if the log has none; errors are r's.
func Read(r io.Reader) (*Finding, *Startup, error) {
	s, start := scanner{errors: map[errorSort]int{}}, &Startup{}
	in := bufio.NewReaderSize(r, lineBytes)
	for number := 1; ; {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			start.add(line)
			s.add(line, number) // cleans it in place
		}
		switch {
		case err == nil:
			number++
		case errors.Is(err, bufio.ErrBufferFull): // the rest of the line follows
		case errors.Is(err, io.EOF):
			found := s.finish()
			if !start.found() {
				return found, nil, nil
			}
			if found != nil {
				found.Settings.Graphs = start.Estimated
			}
			return found, start, nil
		default:
			return nil, nil, err
		}
	}
}

// scanner holds the window of text that is being searched.
type scanner struct {
	text  []byte // without white space; the first seen bytes were searched
	seen  int
	lines []lineStart // of text, in order

	best     *Finding
	asked    *Finding          // the first request of an XLA or TensorFlow text: a dump names none
	read     int               // errors that were read
	errors   map[errorSort]int // how many of each
	settings Settings
	devices  deviceLines
	dumps    dumps
}

type lineStart struct{ at, number int }

// errorSort is what errors have in common that follow from each other.
type errorSort struct {
	framework Framework
	class     int
}

// add takes a line, or a part of one.
func (s *scanner) add(line []byte, number int) {
	line = clean(line)
	s.dumps.line(line)
	if n := len(s.lines); n == 0 || s.lines[n-1].number != number {
		s.lines = append(s.lines, lineStart{len(s.text), number})
	}
	for _, word := range bytes.Fields(line) {
		if n := len(s.text) - 1; n >= s.seen && s.text[n] == '"' && word[0] == '"' { // a literal that goes on in the next one
			s.text, word = s.text[:n], word[1:]
		}
		s.text = append(s.text, word...)
	}
	if len(s.text) >= windowBytes {
		s.search(len(s.text) - errorBytes)
	}
}

// search looks for errors that begin before end, and forgets the text up to there.
func (s *scanner) search(end int) {
	for _, f := range forms {
		for _, m := range f.anchor().FindAllSubmatchIndex(s.text[s.seen:], -1) {
			if s.seen+m[0] >= end {
				break
			}
			s.take(f, m)
		}
	}
	s.settings.search(s.text, s.seen, end)
	s.devices.search(s.text[s.seen:end])
	keep := max(end-lookBehind, 0)
	at := max(slices.IndexFunc(s.lines, func(l lineStart) bool { return l.at > keep })-1, 0)
	if last := len(s.lines) - 1; last >= 0 && s.lines[last].at <= keep {
		at = last
	}
	s.lines = slices.Delete(s.lines, 0, at)
	for i := range s.lines {
		s.lines[i].at -= keep
	}
	s.text = s.text[:copy(s.text, s.text[keep:])]
	s.seen = end - keep
}

// take reads the error at a match of a form.
func (s *scanner) take(f form, m []int) {
	start := s.seen + m[0]
	if s.read++; s.read > mostErrors && f.class <= s.best.class {
		return
	}
	e := match{before: s.text[max(start-lookBehind, 0):start], after: s.text[start:min(start+errorBytes, len(s.text))]}
	for i := 2; i < len(m); i += 2 {
		group := ""
		if m[i] >= 0 {
			group = string(s.text[s.seen+m[i] : s.seen+m[i+1]])
		}
		e.groups = append(e.groups, group)
	}
	found := f.read(&e)
	if found == nil {
		return
	}
	found.class = f.class
	if found.class == withFigures && found.Total == nil && found.Framework == Torch && found.Vendor == "" && found.Allocated == nil {
		found.class = withSize
	}
	found.Line = s.lineOf(start)
	s.errors[errorSort{found.Framework, found.class}]++
	if s.asked == nil && (found.Framework == TensorFlow || found.Framework == JAX) && found.Requested != nil && found.class >= withSize {
		s.asked = found
	}
	// Forms are searched one after the other: within a class, the earlier line wins.
	switch {
	case s.best == nil || found.class > s.best.class:
		if s.best != nil && found.class == wrapping {
			found.takeFigures(s.best)
		}
		s.best = found
	case found.class == s.best.class && found.Line < s.best.Line:
		s.best = found
	}
}

// takeFigures fills in what the error that this one wraps says.
func (f *Finding) takeFigures(of *Finding) {
	if of.Framework != Torch {
		return
	}
	for _, pair := range [][2]**int64{
		{&f.Requested, &of.Requested}, {&f.Total, &of.Total}, {&f.Free, &of.Free}, {&f.Allocated, &of.Allocated},
		{&f.ReservedUnallocated, &of.ReservedUnallocated}, {&f.ThisProcess, &of.ThisProcess}, {&f.OtherProcesses, &of.OtherProcesses},
	} {
		if *pair[0] == nil {
			*pair[0] = *pair[1]
		}
	}
}

// lineOf returns the number of the line that a byte of the window is in.
func (s *scanner) lineOf(at int) int {
	i, found := slices.BinarySearchFunc(s.lines, at, func(l lineStart, at int) int { return l.at - at })
	if !found {
		i--
	}
	if i < 0 {
		return 0
	}
	return s.lines[i].number
}

// finish searches what is left, and judges.
func (s *scanner) finish() *Finding {
	s.search(len(s.text))
	f := s.best
	if d := s.dumps.complete; d != nil && (f == nil || f.Framework == TensorFlow || f.Framework == JAX || f.class < withFigures) {
		f = d.finding(s.asked, f)
	}
	if f == nil {
		return nil
	}
	f.Errors = 1
	if f.Dump == nil {
		f.Errors = s.errors[errorSort{f.Framework, f.class}]
	}
	f.Settings = s.settings.with(f.Settings)
	if f.Framework == TensorFlow || f.Framework == JAX {
		f.Framework = s.settings.compiler(f.Framework)
		s.devices.fill(f)
	}
	f.judge()
	return f
}
