package kvcache

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPoliciesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]Policy{
		"max:2048":          {Kind: Max, Length: 2048},
		"max:2048/firstfit": {Kind: Max, Length: 2048, Allocator: FirstFit},
		"pow2":              {Kind: Pow2},
		"pow2/bestfit":      {Kind: Pow2, Allocator: BestFit},
		"oracle":            {Kind: Oracle},
		"paged:16":          {Kind: Paged, Block: 16},
	} {
		got, err := ParsePolicy(text)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("ParsePolicy(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("%+v is written %q, want %q", got, got.String(), text)
		}
	}
	if p, err := ParsePolicy("oracle/buddy"); err != nil || !cmp.Equal(p, Policy{Kind: Oracle}) {
		t.Errorf("ParsePolicy(oracle/buddy) = %+v, %v", p, err)
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
		"paged:16/buddy": "makes none",
		"max:8/slab":     "want buddy, firstfit, bestfit",
	} {
		if _, err := ParsePolicy(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePolicy(%q): %v, want %q", text, err, want)
		}
	}
}
