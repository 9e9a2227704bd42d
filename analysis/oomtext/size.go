package oomtext

import (
	"math"
	"strconv"
	"strings"
)

// size matches a number of bytes as allocators print it, in text without white space. Its group is the whole size.
const size = `(\d[\d,]{0,20}\.?\d{0,9}(?:bytes|[KMGT]i?B|B\b))`

// units are powers of 1024 whatever their spelling: none of the programs that are read prints decimal units.
var units = map[string]float64{
	"": 1, "B": 1, "bytes": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50,
}

// parseSize returns the bytes of a match of size, and nil for what is no number of bytes that there can be.
func parseSize(text string) *int64 {
	text = strings.ReplaceAll(text, ",", "")
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(text)
	}
	unit := strings.TrimSuffix(strings.TrimSuffix(text[end:], "B"), "i")
	if text[end:] == "bytes" {
		unit = "bytes"
	}
	value, err := strconv.ParseFloat(text[:end], 64)
	scale, ok := units[unit]
	if bytes := math.Round(value * scale); err == nil && ok && bytes < math.MaxInt64 {
		return known(int64(bytes))
	}
	return nil
}

// wholeBytes returns a number of bytes without a unit.
func wholeBytes(text string) *int64 {
	n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}
