package oomtext

import (
	"bytes"
	"unicode/utf8"
)

// clean removes from a line what terminals, loggers and launchers put around its text: escape sequences, frames, and prefixes like
// "[rank0]: ", "(EngineCore pid=316) ERROR 03-03 19:38:29 [core.py:708] " or "2024-07-12 14:40:46.379: I tsl/bfc_allocator.cc:1095] ".
// It reuses the line's memory.
func clean(line []byte) []byte {
	line = unframed(line)
	for range 12 { // prefixes, one in front of the other
		shorter := bytes.TrimLeft(line, " \t>|")
		shorter = shorter[prefix(shorter):]
		if len(shorter) == len(line) {
			break
		}
		line = shorter
	}
	return bytes.TrimRight(line, " \t|")
}

// unframed removes escape sequences, control characters, characters that draw boxes, and "\n" written as two characters.
func unframed(line []byte) []byte {
	out := line[:0]
	for i := 0; i < len(line); {
		c := line[i]
		switch {
		case c == 0x1b:
			i += escape(line[i:])
		case c == '\\' && i+1 < len(line) && line[i+1] == 'n':
			out = append(out, ' ')
			i += 2
		case c < ' ' || c == 0x7f:
			out = append(out, ' ')
			i++
		case c < utf8.RuneSelf:
			out = append(out, c)
			i++
		default:
			r, n := utf8.DecodeRune(line[i:])
			if r < 0x2500 || r > 0x257f { // box drawing
				out = append(out, line[i:i+n]...)
			} else {
				out = append(out, ' ')
			}
			i += n
		}
	}
	return out
}

// escape returns the length of the terminal's escape sequence that text begins with.
func escape(text []byte) int {
	if len(text) < 2 {
		return len(text)
	}
	switch text[1] {
	case '[': // CSI: up to a byte from @ to ~
		for i := 2; i < len(text); i++ {
			if text[i] >= '@' && text[i] <= '~' {
				return i + 1
			}
		}
		return len(text)
	case ']': // OSC: up to BEL, or ESC \
		for i := 2; i < len(text); i++ {
			if text[i] == 7 {
				return i + 1
			}
			if text[i] == 0x1b {
				return min(i+2, len(text))
			}
		}
		return len(text)
	}
	return 2
}

// prefix returns the length of one prefix that text begins with, 0 without one.
func prefix(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	switch text[0] {
	case '[':
		return bracketed(text, ']', false)
	case '(':
		return bracketed(text, ')', true)
	}
	end := bytes.IndexAny(text, " \t")
	word := text
	if end >= 0 {
		word = text[:end]
	}
	switch {
	case len(word) <= 40 && isTime(word), isLevel(word), isPlace(word), isSource(word):
		return len(word)
	case isNumber(word) && end >= 0: // glog has the thread between the time and the place
		if next := bytes.Fields(text[end:min(len(text), end+200)]); len(next) > 0 && isPlace(next[0]) {
			return len(word)
		}
	case isNamed(word) && bytes.HasPrefix(bytes.TrimLeft(text[len(word):], " \t"), []byte("|")):
		return len(word)
	}
	return 0
}

// bracketed returns the length of a bracketed prefix, with a colon behind it. Where it must name a process, others are text.
func bracketed(text []byte, closing byte, process bool) int {
	end := bytes.IndexByte(text[:min(len(text), 80)], closing)
	if end < 0 {
		return 0
	}
	inner := text[1:end]
	if process && !bytes.Contains(inner, []byte("pid=")) && !bytes.Contains(inner, []byte("rank")) {
		return 0
	}
	end++
	for end < len(text) && (text[end] == ':' || text[end] == ' ') {
		end++
	}
	return end
}

// isTime says whether a word is a date, a time, both, or the "0:" of a launcher that numbers tasks.
func isTime(word []byte) bool {
	digits, separators := 0, 0
	for i, c := range word {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == ':' || c == '-':
			separators++
		case c == '.' || c == ',' || c == '/' || c == 'T' || c == 'Z' || c == '+':
		case i == 0 && (c == 'I' || c == 'W' || c == 'E' || c == 'F'): // glog: W0402
			separators++
		default:
			return false
		}
	}
	return digits > 0 && separators > 0
}

var levels = map[string]bool{"I": true, "W": true, "E": true, "F": true, "INFO": true, "WARN": true, "WARNING": true, "ERROR": true, "CRITICAL": true, "DEBUG": true, "stdout": true, "stderr": true}

// isLevel says whether a word is the level of a log line.
func isLevel(word []byte) bool { return levels[string(bytes.TrimRight(word, ":"))] }

// isPlace says whether a word is a place in the source as loggers write it: "core.py:708]".
func isPlace(word []byte) bool {
	colon := bytes.LastIndexByte(word, ':')
	if colon <= 0 || len(word) > 160 || word[len(word)-1] != ']' {
		return false
	}
	return isNumber(word[colon+1 : len(word)-1])
}

func isNumber(word []byte) bool {
	for _, c := range word {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(word) > 0
}

// isSource says whether a word names a stream in capitals: "SUBPROCESS:", "STDERR:".
func isSource(word []byte) bool {
	if len(word) < 4 || len(word) > 24 || word[len(word)-1] != ':' {
		return false
	}
	for _, c := range word[:len(word)-1] {
		if (c < 'A' || c > 'Z') && c != '_' {
			return false
		}
	}
	return true
}

// isNamed says whether a word can name a container.
func isNamed(word []byte) bool {
	for _, c := range word {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(word) > 0 && len(word) <= 64
}
