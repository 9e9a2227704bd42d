package models

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/plain"
)

// LayerKind is layers of a model that keep the same of a sequence.
type LayerKind struct {
	Keep   Keep
	Layers int
	// Window is in tokens: how far back Sliding layers see, the length of a chunk of Chunked ones, and what an
	// encoder gives Cross layers. Of State it is how many states a sequence has, 0: one. A speculating engine keeps one
	// for each draft token, too.
	Window int
	Bytes  int64 // on each GPU, of a token in one layer; of the state of a sequence in one layer for State
	// Heads and Size are of a model's own layers: heads of keys and values, and elements of a token in one of them, keys
	// and values together. 0: those of the model.
	Heads, Size int
	Copied      int64 // bytes of a State that no number of GPUs divides
}

// Keep is what a layer keeps of a sequence.
type Keep uint8

const (
	// Full keeps every token: attention, also latent attention (MLA).
	Full Keep = iota
	// Sliding keeps the last Window tokens.
	Sliding
	// Chunked keeps the tokens of the present chunk: local attention.
	Chunked
	// Cross keeps the Window tokens of an encoder, and none of the text.
	Cross
	// State keeps one state, whatever the length: Mamba, linear attention.
	State
)

var keepNames = map[Keep]string{Full: "full", Sliding: "sliding", Chunked: "chunked", Cross: "cross", State: "state"}

// String is the kind as [ParseLayers] reads it, without what follows its number of layers.
func (l LayerKind) String() string {
	if l.Keep == Full || l.Window == 0 {
		return keepNames[l.Keep]
	}
	return fmt.Sprintf("%s/%d", keepNames[l.Keep], l.Window)
}

// parseNumber reads what stands behind the slash: of State the bytes of a layer, and how many there are, else tokens.
func (l *LayerKind) parseNumber(text string) (err error) {
	size, window, several := strings.Cut(text, "/")
	if l.Keep != State {
		window, several = text, true
	}
	if several {
		if l.Window, err = strconv.Atoi(window); err != nil || l.Window < 1 || l.Window > math.MaxInt32 {
			return fmt.Errorf("%q is no number of tokens or states", window)
		}
		if l.Keep == State && l.Window > mostStates {
			return fmt.Errorf("%d states of a sequence: want at most %d", l.Window, mostStates)
		}
	}
	if l.Keep != State {
		return nil
	}
	if l.Bytes, err = plain.ParseSize(size); err == nil && (l.Bytes < 1 || l.Bytes > mostState) {
		err = fmt.Errorf("a state of %d bytes: want from 1 to %d", l.Bytes, int64(mostState))
	}
	return err
}

// ParseLayers reads kinds of layers as they are written on a command line: full:10, sliding/1024:52, chunked/8192:36,
// cross/6404:8, state/2MiB:28 and state/2MiB/4:28, with commas between. Of State the bytes are of one layer; a sequence has
// one of them, or as many as stand behind.
func ParseLayers(text string) ([]LayerKind, error) {
	var kinds []LayerKind
	for _, part := range strings.Split(text, ",") {
		head, layers, counted := strings.Cut(part, ":")
		name, number, numbered := strings.Cut(head, "/")
		k := LayerKind{Keep: math.MaxUint8}
		for keep, known := range keepNames {
			if name == known {
				k.Keep = keep
			}
		}
		n, err := strconv.Atoi(layers)
		if k.Keep == math.MaxUint8 || !counted || err != nil || n < 1 || n > mostLayers || numbered == (k.Keep == Full) {
			return nil, fmt.Errorf("layers %q: want full:N, sliding/WINDOW:N, chunked/LENGTH:N, cross/TOKENS:N or state/SIZE[/STATES]:N", part)
		}
		k.Layers = n
		if numbered {
			if err := k.parseNumber(number); err != nil {
				return nil, fmt.Errorf("layers %q: %w", part, err)
			}
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// Kept returns the positions [from, to) of a sequence of so many tokens that a layer has to keep.
func (l LayerKind) Kept(tokens int64) (from, to int64) {
	window := int64(l.Window)
	switch l.Keep {
	case Sliding:
		return max(0, tokens-window), tokens
	case Chunked:
		return max(0, tokens-1) / window * window, tokens
	case Cross:
		return 0, window
	case State:
		return 0, max(1, window)
	}
	return 0, tokens
}

// SlotBytes is what one token takes in all layers that keep tokens.
func SlotBytes(kinds []LayerKind) int64 {
	var bytes int64
	for _, k := range kinds {
		if k.Keep != State {
			bytes += k.Bytes * int64(k.Layers)
		}
	}
	return bytes
}
