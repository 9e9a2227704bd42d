package models

import (
	"fmt"
)

// Model is the shape of a decoder as far as its weights and its keys and values need it.
type Model struct {
	Name       string
	Layers     int
	Heads      int         // of queries
	KVHeads    int         // of keys and values, at most Heads
	HeadSize   int         // elements of a head
	DtypeBytes int         // of an element of weights, and of keys and values unless KVBytes says otherwise
	Parameters int64       // all of them, shared embeddings once
	MaxLength  int         // tokens of a sequence
	KVBytes    int         // of an element of keys and values, where it is not DtypeBytes; else 0
	Weights    int64       // bytes of all of them, where these are not Parameters of DtypeBytes; else 0
	Own        []LayerKind // layers, where they do not all keep every token; else nil
}

// Kinds are the model's layers by what they keep, with the bytes on each of so many GPUs: the given ones, or the
// model's own. Their number replaces Layers, of which states have no keys and values.
func (m *Model) Kinds(given []LayerKind, ranks int) []LayerKind {
	if given == nil {
		given = m.Own
	}
	if given == nil {
		given = layersOf[m.Name]
	}
	if given == nil {
		given = []LayerKind{{Keep: Full, Layers: m.Layers}}
	}
	var out []LayerKind
	for _, k := range given {
		switch {
		case k.Keep == State:
			k.Bytes = share(k.Bytes-k.Copied, ranks) + k.Copied
		case k.Heads > 0:
			k.Bytes = int64(max(1, k.Heads/ranks)) * int64(k.Size) * int64(m.kvBytes())
		default:
			k.Bytes = 2 * m.TensorTokenBytes(ranks)
		}
		out = append(out, k)
	}
	return out
}

// Ranks says whether the model can be divided over so many GPUs: each has a whole number of the
// query heads, and of the heads of keys and values a whole number, or a copy of one.
func (m *Model) Ranks(ranks int) error {
	switch {
	case ranks < 1:
		return fmt.Errorf("%d GPUs: want at least 1", ranks)
	case m.Heads%ranks != 0:
		return fmt.Errorf("%s has %d heads, which %d GPUs do not divide", m.Name, m.Heads, ranks)
	case m.KVHeads%ranks != 0 && ranks%m.KVHeads != 0:
		return fmt.Errorf("%s has %d KV heads, which %d GPUs can neither divide evenly nor copy evenly", m.Name, m.KVHeads, ranks)
	}
	return nil
}

// TensorTokenBytes is what one token takes of one layer's keys, or of its values, on each of so
// many GPUs.
func (m *Model) TensorTokenBytes(ranks int) int64 {
	return int64(max(1, m.KVHeads/ranks)) * int64(m.HeadSize) * int64(m.kvBytes())
}

// kvBytes is the bytes of an element of keys and values.
func (m *Model) kvBytes() int {
	if m.KVBytes > 0 {
		return m.KVBytes
	}
	return m.DtypeBytes
}

// Tensors are the keys and the values of each layer.
func (m *Model) Tensors() int { return 2 * m.Layers }

// BytesPerToken is what the keys and values of one token take on each of so many GPUs.
func (m *Model) BytesPerToken(ranks int) int64 {
	return int64(m.Tensors()) * m.TensorTokenBytes(ranks)
}

// WeightBytes are the model's weights on each of so many GPUs, divided evenly and rounded up.
func (m *Model) WeightBytes(ranks int) int64 {
	if m.Weights > 0 {
		return share(m.Weights, ranks)
	}
	return share(m.Parameters*int64(m.DtypeBytes), ranks)
}

// Card is where the memory of one GPU goes that serves a model, in bytes: Weights + KV + Rest =
// Total.
type Card struct {
	Total   int64 `json:"total"`
	Weights int64 `json:"weights"`
	KV      int64 `json:"kv"`
	Rest    int64 `json:"rest"`
}

// Split divides a card. KV of 0 is all that weights and rest leave; else the rest is what weights
// and KV leave. It is an error if they do not fit.
func (m *Model) Split(total int64, ranks int, kv, rest int64) (Card, error) {
	c := Card{Total: total, Weights: m.WeightBytes(ranks), KV: kv, Rest: rest}
	left := total - c.Weights
	if kv == 0 {
		c.KV = left - rest
		if c.KV <= 0 {
			return c, fmt.Errorf("weights (%d bytes) and the rest (%d bytes) leave nothing of %d bytes for the KV cache", c.Weights, rest, total)
		}
		return c, nil
	}
	c.Rest = left - kv
	if c.Rest < rest {
		return c, fmt.Errorf("weights (%d bytes), KV cache (%d bytes) and the rest (%d bytes) do not fit into %d bytes", c.Weights, kv, rest, total)
	}
	return c, nil
}

// share returns what each of so many GPUs has of some bytes, rounded up.
func share(bytes int64, ranks int) int64 { return (bytes + int64(ranks) - 1) / int64(ranks) }
