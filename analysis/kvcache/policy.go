package kvcache

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/kvcache/models"
)

// Policy is how memory for a sequence is reserved.
type Policy struct {
	Kind   PolicyKind
	Length int                // Max: tokens reserved for each sequence
	Block  int                // Paged, Hybrid and Uniform: tokens of a block
	Layers []models.LayerKind // Hybrid and Uniform
	Slot   int64              // of these: bytes of a token in all layers that keep any
}

// PolicyKind is the kind of a policy.
type PolicyKind uint8

const (
	// Max reserves the same greatest length for every sequence.
	Max PolicyKind = iota
	// Pow2 reserves the prompt and the output rounded up to a power of two.
	Pow2
	// Oracle reserves what will be needed.
	Oracle
	// Paged takes blocks of fixed size as they are needed.
	Paged
	// Hybrid has a block table for each group of layers that keep the same, in pages of one size.
	Hybrid
	// Uniform has one block table, and all layers keep all tokens.
	Uniform
)

// MostBlocks is more than any memory has; larger numbers are errors.
const MostBlocks = 1 << 24

// policyForms is what ParsePolicy takes, for its errors.
const policyForms = "max:L, pow2, oracle, paged:B, hybrid:B or uniform:B"

// ParsePolicy reads a policy as it is written on a command line: max:2048, pow2 and oracle, and
// paged:16, hybrid:16 and uniform:16, of tokens a block.
func ParsePolicy(text string) (Policy, error) {
	kind, number, numbered := strings.Cut(text, ":")
	var p Policy
	var err error
	switch kind {
	case "max":
		p.Kind = Max
		p.Length, err = parseTokens(number)
	case "pow2":
		p.Kind = Pow2
	case "oracle":
		p.Kind = Oracle
	case "paged":
		p.Kind = Paged
		p.Block, err = parseTokens(number)
	case "hybrid", "uniform":
		p.Kind = Hybrid
		if kind == "uniform" {
			p.Kind = Uniform
		}
		p.Block, err = parseTokens(number)
	default:
		return Policy{}, fmt.Errorf("policy %q: want %s", text, policyForms)
	}
	switch {
	case err != nil:
		return Policy{}, fmt.Errorf("policy %q: %w", text, err)
	case numbered && (p.Kind == Pow2 || p.Kind == Oracle):
		return Policy{}, fmt.Errorf("policy %q: %s takes no number", text, kind)
	}
	return p, nil
}

// parseTokens reads a number of tokens that a sequence or a block can have.
func parseTokens(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("want tokens from 1, not %q", text)
	}
	return int(n), nil
}

// String is the policy as ParsePolicy reads it.
func (p Policy) String() string {
	switch p.Kind {
	case Max:
		return fmt.Sprintf("max:%d", p.Length)
	case Pow2:
		return "pow2"
	case Oracle:
		return "oracle"
	case Paged:
		return fmt.Sprintf("paged:%d", p.Block)
	case Hybrid:
		return fmt.Sprintf("hybrid:%d", p.Block)
	case Uniform:
		return fmt.Sprintf("uniform:%d", p.Block)
	}
	return fmt.Sprintf("policy %d", p.Kind)
}
