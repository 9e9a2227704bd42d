package models

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const mostHeader = 100 << 20 // bytes: the limit of safetensors itself

// weightsIn adds up the tensors of the *.safetensors in a folder, by their headers. Mistral's consolidated files are
// copies of the others, and left out where there are others.
func weightsIn(folder string) (bytes, parameters int64, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.safetensors"))
	if err != nil {
		return 0, 0, nil // the folder's name is a pattern that cannot be read: as if there were none
	}
	isCopy := func(file string) bool { return strings.HasPrefix(filepath.Base(file), "consolidated") }
	if slices.ContainsFunc(files, func(file string) bool { return !isCopy(file) }) {
		files = slices.DeleteFunc(files, isCopy)
	}
	for _, path := range files {
		b, n, err := headerOf(path)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", path, err)
		}
		bytes, parameters = bytes+b, parameters+n
	}
	return bytes, parameters, nil
}

// headerOf reads the header of a file: its length in 8 bytes, then JSON with the place of each tensor behind it.
func headerOf(path string) (bytes, parameters int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, 0, err
	}
	var length [8]byte
	if _, err := io.ReadFull(file, length[:]); err != nil {
		return 0, 0, fmt.Errorf("no safetensors file: %d bytes", info.Size())
	}
	header := binary.LittleEndian.Uint64(length[:])
	if header > mostHeader || int64(header) > info.Size()-8 {
		return 0, 0, fmt.Errorf("no safetensors file: a header of %d bytes in a file of %d", header, info.Size())
	}
	var tensors map[string]struct {
		Dtype   string
		Shape   []int64
		Offsets [2]int64 `json:"data_offsets"`
	}
	decoder := json.NewDecoder(io.LimitReader(file, int64(header)))
	var fields map[string]json.RawMessage
	if err := decoder.Decode(&fields); err != nil {
		return 0, 0, fmt.Errorf("header, byte %d: %w", decoder.InputOffset(), err)
	}
	delete(fields, "__metadata__")
	text, _ := json.Marshal(fields)
	if err := json.Unmarshal(text, &tensors); err != nil {
		return 0, 0, fmt.Errorf("header: %w", err)
	}
	data := info.Size() - 8 - int64(header)
	for name, t := range tensors {
		if t.Offsets[0] < 0 || t.Offsets[1] < t.Offsets[0] || t.Offsets[1] > data {
			return 0, 0, fmt.Errorf("tensor %.60q: bytes %d to %d of %d: the file is cut", name, t.Offsets[0], t.Offsets[1], data)
		}
		size := t.Offsets[1] - t.Offsets[0]
		elements := int64(1)
		for _, n := range t.Shape {
			if n < 0 || n > 0 && elements > 8*data/n {
				return 0, 0, fmt.Errorf("tensor %.60q: shape %v of %d bytes", name, t.Shape, size)
			}
			elements *= n
		}
		bytes, parameters = bytes+size, parameters+elements
	}
	return bytes, parameters, nil
}
