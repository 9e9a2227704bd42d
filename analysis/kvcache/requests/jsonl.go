package requests

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/memprof/memprof/analysis/kvcache"
)

// hashTokens are the tokens that a name of Mooncake's stands for.
const hashTokens = 512

// maxLine is the most that is read of a line of JSONL, in bytes.
const maxLine = 16 << 20

type jsonlReader struct {
	file     string
	lines    *bufio.Scanner
	line     int
	arrivals arrivals
	requests int
	timed    bool
}

// NewJSONL reads objects, one a line; file is what errors call the file.
func NewJSONL(r io.Reader, file string) Reader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	return &jsonlReader{file: file, lines: lines}
}

func (j *jsonlReader) Timed() bool { return j.timed }

func (j *jsonlReader) Next() (kvcache.Request, error) {
	for j.lines.Scan() {
		j.line++
		text := bytes.TrimSpace(j.lines.Bytes())
		if len(text) == 0 {
			continue
		}
		r, err := j.parse(text)
		if err != nil {
			return kvcache.Request{}, &Error{j.file, j.line, err}
		}
		j.requests++
		return r, nil
	}
	switch err := j.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return kvcache.Request{}, &Error{j.file, j.line + 1, fmt.Errorf("line is longer than %d bytes", maxLine)}
	case err != nil:
		return kvcache.Request{}, fmt.Errorf("reading %s: %w", j.file, err)
	}
	return kvcache.Request{}, io.EOF
}

// object is a line; what is not there is nil.
type object struct {
	Prompt       *int64   `json:"prompt"`
	InputLength  *int64   `json:"input_length"`
	Output       *int64   `json:"output"`
	OutputLength *int64   `json:"output_length"`
	Timestamp    *float64 `json:"timestamp"`
	Prompts      *int32   `json:"prompts"`
	HashIDs      []uint64 `json:"hash_ids"`
	HashTokens   *int32   `json:"hash_tokens"`
}

func (j *jsonlReader) parse(text []byte) (kvcache.Request, error) {
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return kvcache.Request{}, wrongType(wrong)
		}
		return kvcache.Request{}, err
	}
	r := kvcache.Request{Line: j.line}
	var err error
	if r.Prompt, err = jsonTokens("prompt", "input_length", o.Prompt, o.InputLength); err != nil {
		return r, err
	}
	if r.Output, err = jsonTokens("output", "output_length", o.Output, o.OutputLength); err != nil {
		return r, err
	}
	if o.Prompts != nil {
		if r.Prompts = int(*o.Prompts); r.Prompts < 1 {
			return r, fmt.Errorf("prompts is %d, want at least 1", r.Prompts)
		}
	}
	if err := o.hashes(&r); err != nil {
		return r, err
	}
	return r, j.arrive(o.Timestamp, &r)
}

// wrongType says in words of JSON what encoding/json says in words of Go.
func wrongType(err *json.UnmarshalTypeError) error {
	want := err.Type.String()
	switch err.Type.Kind() {
	case reflect.Int32, reflect.Int64:
		want = "a whole number"
	case reflect.Uint64:
		want = "a whole number from 0"
	case reflect.Float64:
		want = "a number"
	case reflect.Slice:
		want = "an array"
	}
	is := "a " + err.Value
	if strings.HasPrefix(err.Value, "a") || strings.HasPrefix(err.Value, "o") { // array, object
		is = "an " + err.Value
	}
	if err.Field == "" {
		return fmt.Errorf("the line is %s, want an object", is)
	}
	return fmt.Errorf("%s is %s, want %s", err.Field, is, want)
}

// jsonTokens is a length by either name.
func jsonTokens(name, other string, value, same *int64) (int, error) {
	switch {
	case value != nil && same != nil:
		return 0, fmt.Errorf("both %s and %s are given", name, other)
	case value == nil && same == nil:
		return 0, fmt.Errorf("neither %s nor %s is given", name, other)
	}
	return checkTokens(name, *cmp.Or(value, same))
}

// hashes takes the names of pieces that the prompt reaches; more say nothing of it.
func (o *object) hashes(r *kvcache.Request) error {
	r.HashTokens = hashTokens
	if o.HashTokens != nil {
		r.HashTokens = int(*o.HashTokens)
	}
	if r.HashTokens < 1 {
		return fmt.Errorf("hash_tokens is %d, want at least 1", r.HashTokens)
	}
	pieces := (r.Prompt + r.HashTokens - 1) / r.HashTokens
	r.Hashes = o.HashIDs[:min(pieces, len(o.HashIDs))]
	if len(r.Hashes) == 0 {
		r.Hashes, r.HashTokens = nil, 0
	}
	return nil
}

func (j *jsonlReader) arrive(timestamp *float64, r *kvcache.Request) error {
	if j.requests == 0 {
		j.timed = timestamp != nil
	}
	if j.timed != (timestamp != nil) {
		return errors.New("some requests have a timestamp, and some have none")
	}
	if timestamp == nil {
		return nil
	}
	ns, err := nanoseconds(*timestamp, 1e6)
	if err != nil {
		return err
	}
	r.Arrival, err = j.arrivals.since(ns)
	return err
}
