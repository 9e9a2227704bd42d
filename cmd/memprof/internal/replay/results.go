// Package replay keeps and prints the results of operations that were replayed in the model of the allocator.
package replay

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/memprof/memprof/bfc/ops"
	"github.com/memprof/memprof/report/plain"
)

// inMemory is how many bytes of results are kept in memory; the rest goes to a temporary file.
const inMemory = 8 << 20

// Results keeps the results of operations until the last one was valid. It takes 10 to 30 bytes an operation
// besides the name, on disk after the first inMemory bytes.
type Results struct {
	kept  []byte
	file  *os.File // nil while kept is enough
	count int
	line  []byte

	verbs, names int // the longest of each, in characters
}

// Add keeps a result.
func (k *Results) Add(r *ops.Result) error {
	k.count++
	k.verbs = max(k.verbs, len(r.Verb))
	k.names = max(k.names, utf8.RuneCountInString(plain.Text(r.Name)))
	line := k.line[:0]
	for _, text := range []string{string(r.Verb), r.Name} {
		line = append(binary.AppendUvarint(line, uint64(len(text))), text...)
	}
	ok := uint64(0)
	if r.OK {
		ok = 1
	}
	for _, n := range []uint64{ok, uint64(r.Region), r.Offset, r.Requested, r.Provided, r.Released} {
		line = binary.AppendUvarint(line, n)
	}
	k.line = line
	if len(k.kept)+len(line) > inMemory {
		if err := k.spill(); err != nil {
			return err
		}
	}
	k.kept = append(k.kept, line...)
	return nil
}

// spill writes the results in memory to the temporary file, which has no name.
func (k *Results) spill() (err error) {
	if k.file == nil {
		if k.file, err = os.CreateTemp("", "memprof-replay-*"); err != nil {
			return fmt.Errorf("results of the replay: %w", err)
		}
		os.Remove(k.file.Name())
	}
	if _, err := k.file.Write(k.kept); err != nil {
		return fmt.Errorf("results of the replay: %w (TMPDIR names a place with more room)", err)
	}
	k.kept = k.kept[:0]
	return nil
}

// Close removes what is kept on the disk.
func (k *Results) Close() {
	if k.file != nil {
		k.file.Close()
	}
}

// each visits the results in their order.
func (k *Results) each(visit func(i int, r *ops.Result) error) error {
	in := bufio.NewReader(bytes.NewReader(k.kept))
	if k.file != nil {
		if err := k.spill(); err != nil {
			return err
		}
		if _, err := k.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		in = bufio.NewReader(k.file)
	}
	for i := range k.count {
		r, err := readResult(in)
		if err != nil {
			return fmt.Errorf("results of the replay: %w", err)
		}
		if err := visit(i, &r); err != nil {
			return err
		}
	}
	return nil
}

func readResult(in *bufio.Reader) (r ops.Result, err error) {
	number := func() uint64 {
		n, readErr := binary.ReadUvarint(in)
		err = errors.Join(err, readErr)
		return n
	}
	text := func() string {
		text := make([]byte, number())
		_, readErr := io.ReadFull(in, text)
		err = errors.Join(err, readErr)
		return string(text)
	}
	r.Verb = ops.Verb(text())
	r.Name = text()
	r.OK, r.Region = number() == 1, int(number())
	r.Offset, r.Requested, r.Provided, r.Released = number(), number(), number(), number()
	return r, err
}
