package kvcache

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestPoliciesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]Policy{
		"max:2048": {Kind: Max, Length: 2048},
		"pow2":     {Kind: Pow2},
		"oracle":   {Kind: Oracle},
		"paged:16": {Kind: Paged, Block: 16},
	} {
		got, err := ParsePolicy(text)
		assert.That(t, err == nil && cmp.Equal(got, want), "ParsePolicy(%q) = %+v, %v, want %+v", text, got, err, want)
		assert.Equal(t, got.String(), text, "%+v is written", got)
	}
}

func TestPoliciesThatMakeNoSense(t *testing.T) {
	for text, want := range map[string]string{
		"":               "want max:L",
		"best":           "want max:L",
		"max":            "want tokens from 1",
		"max:0":          "want tokens from 1",
		"max:-3":         "want tokens from 1",
		"max:9999999999": "want tokens from 1",
		"pow2:4":         "takes no number",
		"paged":          "want tokens from 1",
		"oracle/buddy":   "want max:L",
		"max:8/buddy":    "want tokens from 1",
	} {
		_, err := ParsePolicy(text)
		assert.That(t, err != nil && strings.Contains(err.Error(), want), "ParsePolicy(%q): %v, want %q", text, err, want)
	}
}
