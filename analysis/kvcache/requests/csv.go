package requests

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/memprof/memprof/analysis/kvcache"
)

// The columns of a CSV file; columnNames are what each may be called, in small letters.
const (
	promptColumn = iota
	outputColumn
	timeColumn
	promptsColumn
	columnKinds
)

var columnNames = [columnKinds][]string{
	promptColumn:  {"contexttokens", "num_prefill_tokens", "prompt", "prompt_tokens", "input_length", "input_tokens"},
	outputColumn:  {"generatedtokens", "num_decode_tokens", "output", "output_tokens", "output_length"},
	timeColumn:    {"timestamp", "arrived_at", "arrival", "time"},
	promptsColumn: {"prompts", "batch"},
}

type csvReader struct {
	file     string
	records  *csv.Reader
	columns  [columnKinds]int // -1: not there
	arrivals arrivals
}

// NewCSV reads the line of names; file is what errors call the file.
func NewCSV(r io.Reader, file string) (Reader, error) {
	c := &csvReader{file: file, records: csv.NewReader(r)}
	c.records.ReuseRecord = true
	c.records.TrimLeadingSpace = true
	names, err := c.records.Read()
	if err == io.EOF {
		return nil, &Error{file, 1, errors.New("the file is empty; want a line of column names")}
	}
	if err != nil {
		return nil, c.failed(err)
	}
	c.columns = [columnKinds]int{-1, -1, -1, -1}
	for i, name := range names {
		if err := c.column(i, strings.TrimPrefix(name, "\ufeff")); err != nil {
			return nil, &Error{file, 1, err}
		}
	}
	for kind, what := range []string{"prompts", "outputs"} {
		if c.columns[kind] < 0 {
			return nil, &Error{file, 1, fmt.Errorf("no column of the lengths of %s: want one of %s", what, strings.Join(columnNames[kind], ", "))}
		}
	}
	return c, nil
}

func (c *csvReader) column(i int, name string) error {
	name = strings.ToLower(strings.TrimSpace(name))
	for kind, names := range columnNames {
		if !slices.Contains(names, name) {
			continue
		}
		if c.columns[kind] >= 0 {
			return fmt.Errorf("columns %d and %d mean the same", c.columns[kind]+1, i+1)
		}
		c.columns[kind] = i
	}
	return nil
}

// failed gives an error of the CSV reader our form.
func (c *csvReader) failed(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return &Error{c.file, parse.Line, parse.Err}
	}
	return fmt.Errorf("reading %s: %w", c.file, err)
}

func (c *csvReader) Timed() bool { return c.columns[timeColumn] >= 0 }

func (c *csvReader) Next() (kvcache.Request, error) {
	fields, err := c.records.Read()
	if err == io.EOF {
		return kvcache.Request{}, io.EOF
	}
	if err != nil {
		return kvcache.Request{}, c.failed(err)
	}
	line, _ := c.records.FieldPos(0)
	r := kvcache.Request{Line: line}
	if err := c.parse(fields, &r); err != nil {
		return kvcache.Request{}, &Error{c.file, line, err}
	}
	return r, nil
}

func (c *csvReader) parse(fields []string, r *kvcache.Request) error {
	var err error
	if r.Prompt, err = csvTokens("prompt", fields[c.columns[promptColumn]]); err != nil {
		return err
	}
	if r.Output, err = csvTokens("output", fields[c.columns[outputColumn]]); err != nil {
		return err
	}
	if i := c.columns[promptsColumn]; i >= 0 {
		n, err := strconv.ParseInt(strings.TrimSpace(fields[i]), 10, 32)
		if err != nil || n < 1 {
			return fmt.Errorf("prompts %q: want a whole number from 1", fields[i])
		}
		r.Prompts = int(n)
	}
	if i := c.columns[timeColumn]; i >= 0 {
		moment, err := csvTime(strings.TrimSpace(fields[i]))
		if err != nil {
			return err
		}
		r.Arrival, err = c.arrivals.since(moment)
		return err
	}
	return nil
}

func csvTokens(what, text string) (int, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, fmt.Errorf("the length of the %s is missing", what)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("length of the %s %q: want a whole number", what, text)
	}
	return checkTokens(what, n)
}

// csvTime is a date or seconds, in ns.
func csvTime(text string) (int64, error) {
	if text == "" {
		return 0, errors.New("the time is missing")
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return nanoseconds(seconds, 1e9)
	}
	for _, layout := range []string{time.DateTime, time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00"} {
		if moment, err := time.Parse(layout, text); err == nil {
			return moment.UnixNano(), nil
		}
	}
	return 0, fmt.Errorf("time %q: want seconds, or a date as 2023-11-16 18:15:46.68", text)
}
