package torchalloc

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

const (
	mib = 1 << 20

	unit         = 512      // bytes; every block is a multiple of it
	smallLimit   = 1 * mib  // largest rounded size of the small pool
	smallSegment = 2 * mib  // a small segment, and the page of the small pool
	largeSegment = 20 * mib // L, unless large_segment_size_mb says otherwise
	ownSegment   = 10 * mib // rounded size from which a request has a segment of its own
	segmentUnit  = 2 * mib  // what segments of their own are rounded up to

	unlimited = ^uint64(0)
)

// Version is a release of torch whose rules differ from those of the one before.
type Version uint8

const (
	Torch26  Version = iota // up to 2.6
	Torch211                // 2.7 to 2.12; run against 2.11
	Torch213                // from 2.13 on, after its sources; not run
)

// ParseVersion returns the rules for a version of torch, such as "2.11.0+cu130".
func ParseVersion(text string) (Version, error) {
	major, rest, _ := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, err := strconv.Atoi(major)
	n, err2 := strconv.Atoi(minor)
	if err != nil || err2 != nil || m < 1 {
		return 0, fmt.Errorf("torch version %q: want a release such as 2.11.0", text)
	}
	switch {
	case m < 2 || m == 2 && n <= 6:
		return Torch26, nil
	case m == 2 && n <= 12:
		return Torch211, nil
	}
	return Torch213, nil
}

// Settings are the parts of PYTORCH_CUDA_ALLOC_CONF that concern placement. The zero value is not
// valid; DefaultSettings returns those without the variable.
type Settings struct {
	Expandable          bool       // expandable_segments
	MaxSplit            uint64     // S in bytes; all bits set is off
	MaxNonSplitRounding uint64     // bytes
	GarbageCollection   float64    // share of the limit, in [0, 1); 0 is off
	Roundup             [16]uint64 // divisor by power of two from 1 MiB on; 0 and 1 are off
	LargeSegment        uint64     // L in bytes, more than 10 MiB
	Fraction            float64    // per_process_memory_fraction; 0 where it is not set
}

// DefaultSettings returns torch's settings without PYTORCH_CUDA_ALLOC_CONF.
func DefaultSettings() Settings {
	return Settings{MaxSplit: unlimited, MaxNonSplitRounding: largeSegment, LargeSegment: largeSegment}
}

// unplaced are keys of torch that have no effect on the device's memory, as those of pinned host memory (pinned_...).
var unplaced = map[string]bool{
	"backend": true, "release_lock_on_cudamalloc": true, "release_lock_on_hipmalloc": true,
	"graph_capture_record_stream_reuse": true, "throw_on_cudamalloc_oom": true,
}

// ParseSettings reads the text of PYTORCH_CUDA_ALLOC_CONF by the rules of a version. An error
// names the entry and the values that torch accepts.
func ParseSettings(text string, v Version) (Settings, error) {
	s := DefaultSettings()
	entries, err := splitEntries(text)
	if err != nil {
		return s, err
	}
	for _, entry := range entries {
		key, value, _ := strings.Cut(entry, ":")
		if err := s.set(key, value, v); err != nil {
			return s, fmt.Errorf("allocator setting %q: %w", entry, err)
		}
	}
	if s.MaxSplit < s.LargeSegment {
		return s, fmt.Errorf("allocator settings %q: max_split_size_mb is less than large_segment_size_mb", text)
	}
	return s, nil
}

// splitEntries splits text at commas outside of brackets, without blanks.
func splitEntries(text string) ([]string, error) {
	var entries []string
	depth, from := 0, 0
	text = strings.Map(func(r rune) rune {
		if r == ' ' {
			return -1
		}
		return r
	}, text)
	for i, r := range text + "," {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 && i > from {
				entries = append(entries, text[from:i])
			}
			if depth == 0 {
				from = i + 1
			}
		}
		if depth < 0 || depth > 1 {
			return nil, fmt.Errorf("allocator settings %q: unbalanced bracket at byte %d", text, i)
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("allocator settings %q: a bracket is not closed", text)
	}
	return entries, nil
}

func (s *Settings) set(key, value string, v Version) (err error) {
	switch key {
	case "expandable_segments":
		s.Expandable, err = parseBool(value)
	case "max_split_size_mb":
		s.MaxSplit, err = parseMiB(value)
		if err == nil && (s.MaxSplit < largeSegment || v == Torch26 && s.MaxSplit == largeSegment) {
			err = fmt.Errorf("want more than %d", largeSegment/mib)
		}
	case "max_non_split_rounding_mb":
		s.MaxNonSplitRounding, err = parseMiB(value)
		if err == nil && (s.MaxNonSplitRounding < largeSegment || v == Torch26 && s.MaxNonSplitRounding == largeSegment) {
			err = fmt.Errorf("want more than %d", largeSegment/mib)
		}
	case "garbage_collection_threshold":
		s.GarbageCollection, err = parseShare(value)
	case "per_process_memory_fraction":
		if s.Fraction, err = strconv.ParseFloat(value, 64); err == nil && !(s.Fraction >= 0 && s.Fraction <= 1) {
			err = fmt.Errorf("want a number from 0 to 1")
		}
	case "large_segment_size_mb":
		if v == Torch26 {
			return fmt.Errorf("torch 2.6 does not know it")
		}
		if s.LargeSegment, err = parseMiB(value); err == nil && s.LargeSegment <= ownSegment {
			err = fmt.Errorf("want more than %d", ownSegment/mib)
		}
	case "roundup_power2_divisions":
		s.Roundup, err = parseDivisions(value, v)
	case "expandable_segments_reserve", "expandable_segments_reserve_by_class":
		err = fmt.Errorf("reservations of other sizes are not modeled")
	default:
		if !unplaced[key] && !strings.HasPrefix(key, "pinned_") {
			err = fmt.Errorf("torch knows no such setting")
		}
	}
	return err
}

func parseBool(value string) (bool, error) {
	switch value {
	case "True", "1":
		return true, nil
	case "False", "0":
		return false, nil
	}
	return false, fmt.Errorf("want True or False")
}

func parseShare(value string) (float64, error) {
	share, err := strconv.ParseFloat(value, 64)
	if err != nil || !(share > 0 && share < 1) {
		return 0, fmt.Errorf("want a number between 0 and 1")
	}
	return share, nil
}

func parseMiB(value string) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("want a whole number of MiB")
	}
	return min(n, unlimited/mib) * mib, nil
}

// parseDivisions reads a divisor for all sizes, or [SIZE:D,…,>:D] with sizes in MiB. Entries
// below the first size have its divisor, those between that are not named have none.
func parseDivisions(value string, v Version) (table [16]uint64, err error) {
	if !strings.HasPrefix(value, "[") {
		d, err := parsePower(value)
		for i := range table {
			table[i] = d
		}
		return table, err
	}
	last, first := 0, true
	for _, entry := range strings.Split(strings.Trim(value, "[]"), ",") {
		size, divisor, _ := strings.Cut(entry, ":")
		d, err := parsePower(divisor)
		if err != nil && divisor != "0" {
			return table, err
		}
		if size == ">" {
			// Torch 2.6 overwrites the entry named last as well.
			for i := min(last+btoi(v != Torch26), len(table)); i < len(table); i++ {
				table[i] = d
			}
			continue
		}
		n, err := parsePower(size)
		if err != nil {
			return table, err
		}
		at := min(bits.Len64(n)-1, len(table)-1)
		for i := 0; first && i < at; i++ {
			table[i] = d
		}
		table[at], last, first = d, at, false
	}
	return table, nil
}

func parsePower(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || bits.OnesCount64(n) != 1 {
		return 0, fmt.Errorf("%q is not a power of two", text)
	}
	return n, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Round returns the size of a block for a request of n bytes, n > 0.
func (s *Settings) Round(n uint64) uint64 {
	if n < unit {
		return unit
	}
	entry := min(max(bits.Len64(n)-1-20, 0), len(s.Roundup)-1)
	if d := s.Roundup[entry]; d > 1 && n > unit*d {
		floor := uint64(1) << (bits.Len64(n) - 1)
		return roundUp(n, floor/d)
	}
	return roundUp(n, unit)
}

// Upto is the settings for a job whose greatest request has so many bytes: without a MaxSplit that no block reaches.
func (s Settings) Upto(request uint64) Settings {
	if max(s.segment(s.Round(request)), s.LargeSegment) < s.MaxSplit {
		s.MaxSplit = unlimited
	}
	return s
}

// segment returns the size of the segment for a rounded size.
func (s *Settings) segment(rounded uint64) uint64 {
	switch {
	case rounded <= smallLimit:
		return smallSegment
	case rounded < ownSegment:
		return s.LargeSegment
	}
	return roundUp(rounded, segmentUnit)
}

// roundUp returns n rounded up to a multiple of a power of two.
func roundUp(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }
