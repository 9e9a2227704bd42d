package rmmlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Header is the first line of a log. Logs that are part of others may lack it.
const Header = "Thread,Time,Action,Pointer,Size,Stream"

type action uint8

const (
	allocate action = iota
	free
	failure
)

// row is a line of a log.
type row struct {
	thread uint64
	time   int64 // of the day, ns
	action action
	addr   uint64
	size   uint64
	stream uint64
}

// longestLine bounds a line over what any row has.
const longestLine = 4096

// eachRow gives visit the rows of a log, in their order. Errors name the file and the line.
func eachRow(path string, visit func(*row) error) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, longestLine), longestLine)
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimRight(lines.Bytes(), "\r ")
		if len(line) == 0 || number == 1 && string(line) == Header {
			continue
		}
		r, err := parseRow(string(line))
		if err == nil {
			err = visit(&r)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%s is not a log of RMM: a line has more than %d bytes", path, longestLine)
	} else if err != nil {
		return err
	}
	return nil
}

func parseRow(line string) (r row, err error) {
	fields := strings.Split(line, ",")
	if len(fields) != 6 {
		return r, fmt.Errorf("%d fields, want the 6 of %s", len(fields), Header)
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	if r.thread, err = strconv.ParseUint(fields[0], 0, 64); err != nil {
		return r, fmt.Errorf("thread %q: want a number", fields[0])
	}
	if r.time, err = parseTime(fields[1]); err != nil {
		return r, err
	}
	switch fields[2] {
	case "allocate":
		r.action = allocate
	case "free", "deallocate":
		r.action = free
	case "allocate failure":
		r.action = failure
	default:
		return r, fmt.Errorf("action %q: want allocate, free or allocate failure", fields[2])
	}
	if r.addr, err = parseAddress(fields[3]); err != nil {
		return r, fmt.Errorf("pointer %q: want a hexadecimal number", fields[3])
	}
	if r.size, err = strconv.ParseUint(fields[4], 10, 64); err != nil {
		return r, fmt.Errorf("size %q: want bytes", fields[4])
	}
	if r.stream, err = parseAddress(fields[5]); err != nil {
		return r, fmt.Errorf("stream %q: want a hexadecimal number", fields[5])
	}
	if r.size > 1<<60 || r.addr > 1<<62 || r.stream > math.MaxInt64 {
		return r, fmt.Errorf("%d bytes at %#x of stream %#x", r.size, r.addr, r.stream)
	}
	return r, nil
}

// parseAddress reads what C's %p writes.
func parseAddress(text string) (uint64, error) {
	if text == "(nil)" {
		return 0, nil
	}
	return strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
}

// parseTime reads HH:MM:SS.µµµµµµ, with a colon before the microseconds in old logs, or seconds since 1970.
func parseTime(text string) (int64, error) {
	parts := strings.Split(text, ":")
	if len(parts) == 1 {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(0 <= seconds && seconds < 1e11) {
			return 0, fmt.Errorf("time %q: want HH:MM:SS.microseconds", text)
		}
		whole, part := math.Modf(seconds)
		return int64(whole)%86_400*int64(time.Second) + int64(math.Round(part*1e6))*1000, nil
	}
	if len(parts) == 4 {
		parts = append(parts[:2], parts[2]+"."+parts[3])
	}
	if len(parts) != 3 {
		return 0, fmt.Errorf("time %q: want HH:MM:SS.microseconds", text)
	}
	seconds, micros, _ := strings.Cut(parts[2], ".")
	if len(micros) > 9 {
		micros = micros[:9]
	}
	ns := int64(0)
	for at, field := range []struct {
		text       string
		most, unit int64
	}{
		{parts[0], 23, int64(time.Hour)}, {parts[1], 59, int64(time.Minute)}, {seconds, 60, int64(time.Second)},
		{micros + strings.Repeat("0", 9-len(micros)), math.MaxInt64, 1},
	} {
		n, err := strconv.ParseUint(field.text, 10, 63)
		if err != nil || int64(n) > field.most {
			return 0, fmt.Errorf("time %q: field %d is %q", text, at+1, field.text)
		}
		ns += int64(n) * field.unit
	}
	return ns, nil
}
