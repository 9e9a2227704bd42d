package oomtext

import (
	"strings"
	"testing"
)

// BenchmarkRead reads a training log with an error at its end.
func BenchmarkRead(b *testing.B) {
	log := strings.Repeat("2026-03-03 19:38:29,123 INFO [rank3] step 100 loss 0.25 mem 12.5 GiB of 80.0 GiB, 1.2 it/s\n", 20000) + texts(b)[60].text
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		if f, _, err := Read(strings.NewReader(log)); err != nil || f == nil {
			b.Fatal(f, err)
		}
	}
}
