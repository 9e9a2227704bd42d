package spool_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestLayoutIsThatOfTheHook asks a C compiler where record.h puts things.
func TestLayoutIsThatOfTheHook(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: record.h is not compared")
	}
	const header = "../../hooks/capture/spool/record.h"
	text, err := os.ReadFile(header)
	assert.NoError(t, err)
	var want, ask strings.Builder
	fmt.Fprintf(&want, "sizeof %d %d %d\n", tracetest.ProcessBytes, tracetest.RecordBytes, tracetest.RecordBytes)
	for _, s := range []struct {
		name    string
		offsets map[string]int
	}{
		{"memprof_process", tracetest.ProcessOffsets},
		{"memprof_record", tracetest.RecordOffsets},
		{"memprof_string", tracetest.StringOffsets},
	} {
		for field, offset := range s.offsets {
			fmt.Fprintf(&ask, "printf(\"%s.%s %%d\\n\", (int)offsetof(struct %s, %s));\n", s.name, field, s.name, field)
			fmt.Fprintf(&want, "%s.%s %d\n", s.name, field, offset)
		}
	}
	fmt.Fprintf(&ask, "printf(\"numbers %%d %%d %%u %%d %%d %%d\\n\", MEMPROF_SPOOL_VERSION, MEMPROF_SEGMENT_RECORDS, MEMPROF_COMMITTED, MEMPROF_STRING, MEMPROF_CLOSED, MEMPROF_STOPPED);\n")
	fmt.Fprintf(&want, "numbers 1 %d %d 255 %d %d\n", tracetest.SegmentRecords, tracetest.Committed, tracetest.Closed, tracetest.Stopped)
	kinds := regexp.MustCompile(`(?m)^  MEMPROF_([A-Z_]+) = (\d+),`).FindAllStringSubmatch(string(text), -1)
	seen := 0
	for _, k := range kinds {
		name := strings.ToLower(k[1])
		kind, ok := trace.ParseKind(name)
		if !ok {
			continue // states and the string record
		}
		seen++
		assert.That(t, fmt.Sprint(uint8(kind)) == k[2], "%s is %s in record.h and %d here", name, k[2], kind)
	}
	assert.That(t, seen == len(trace.Kinds()), "record.h has %d of the %d kinds", seen, len(trace.Kinds()))
	dir := t.TempDir()
	source := "#include <stddef.h>\n#include <stdio.h>\n#include \"record.h\"\nint main(void) {\n" +
		"printf(\"sizeof %d %d %d\\n\", (int)sizeof(struct memprof_process), (int)sizeof(struct memprof_record), (int)sizeof(struct memprof_string));\n" +
		ask.String() + "return 0; }\n"
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "layout.c"), []byte(source), 0o644))
	include, err := filepath.Abs(filepath.Dir(header))
	assert.NoError(t, err)
	binary := filepath.Join(dir, "layout")
	if out, err := exec.Command(cc, "-std=c11", "-I", include, "-o", binary, filepath.Join(dir, "layout.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := exec.Command(binary).Output()
	assert.NoError(t, err)
	assert.Diff(t, want.String(), string(got), "layout (-tracetest +record.h)")
}

// kindsOf reads a spool directory of a dead process and returns "kind:text" words.
func kindsOf(t *testing.T, s *tracetest.Spool, final bool) string {
	t.Helper()
	events, texts, damage, err := spool.ReadAll(s.Dir, final)
	assert.NoError(t, err)
	var words []string
	for i, e := range events {
		words = append(words, e.Kind.String()+":"+texts[i])
	}
	if damage != "" {
		words = append(words, "DAMAGE")
	}
	return strings.Join(words, " ")
}

func TestSpoolRecords(t *testing.T) {
	s := tracetest.NewSpool(t, t.TempDir(), 4711, -1)
	want := trace.Event{Kind: trace.KindAlloc, Time: 5, Device: 3, Arena: 7, Thread: 9, Stream: -2,
		Addr: 0x7f2c00000000, Requested: -1, Provided: 1 << 40, Context: 1}
	s.Append(want, "x")
	s.Append(trace.Event{Kind: trace.KindIteration, Device: trace.NoDevice, Arena: trace.NoArena}, "")
	events, _, _, err := spool.ReadAll(s.Dir, true)
	assert.NoError(t, err)
	assert.Diff(t, []trace.Event{want, {Kind: trace.KindIteration, Device: -1, Arena: -1}}, events)
}

func TestSpoolStrings(t *testing.T) {
	s := tracetest.NewSpool(t, t.TempDir(), 4711, -1)
	long := strings.Repeat("0123456789", 409) + "012345" // 4,096 bytes, the longest
	s.Append(trace.Event{Kind: trace.KindAlloc}, long)
	// The pieces of two strings come interleaved and in any order.
	const text = "this text is longer than forty-eight bytes, so it takes two records"
	a, b, c := s.Claim(), s.Claim(), s.Claim()
	s.Piece(a, 100, text, 48, len(text)-48)
	s.Piece(b, 101, "short", 0, 5)
	s.Piece(c, 100, text, 0, 48)
	for _, id := range []int32{101, 100, 102} {
		s.Fill(s.Claim(), trace.Event{Kind: trace.KindFree, Context: id})
	}
	want := "alloc:" + long + " free:short free:" + text + " free:<string 102 is not in the spool>"
	assert.Equal(t, kindsOf(t, s, true), want)
}

func TestUncommittedSlots(t *testing.T) {
	alloc := trace.Event{Kind: trace.KindAlloc}
	tests := []struct {
		name        string
		write       func(s *tracetest.Spool)
		live, final string
	}{
		{"hole", func(s *tracetest.Spool) {
			s.Append(alloc, "a")
			s.Claim()
			s.Append(alloc, "b")
		}, "alloc:a", "alloc:a lost: alloc:b"},
		{"tail", func(s *tracetest.Spool) {
			s.Append(alloc, "a")
			s.Claim()
			s.Claim()
		}, "alloc:a", "alloc:a lost: lost:"},
		{"half a record: anything but the commit word", func(s *tracetest.Spool) {
			s.Append(alloc, "a")
			b := make([]byte, 64)
			for i := 4; i < 64; i++ {
				b[i] = 0xaa
			}
			s.Raw(s.Claim(), b)
		}, "alloc:a", "alloc:a lost:"},
		{"unknown kind", func(s *tracetest.Spool) {
			s.Raw(s.Claim(), []byte{0x4d, 0, 0x50, 0x4d})
			s.Append(alloc, "a")
		}, "", "lost: alloc:a"},
		{"stopped: claims run past the last segment", func(s *tracetest.Spool) {
			s.Append(alloc, "a")
			s.Stop(syscall.ENOSPC, "no room")
			s.SetClaimed(1000)
		}, "alloc:a", "alloc:a"},
		{"claim beyond the last segment", func(s *tracetest.Spool) {
			for range tracetest.SegmentRecords {
				s.Fill(s.Claim(), alloc)
			}
			s.SetClaimed(tracetest.SegmentRecords + 2)
		}, strings.Repeat("alloc: ", 65535) + "alloc:", strings.Repeat("alloc: ", 65536) + "lost: lost:"},
		{"absurd claim", func(s *tracetest.Spool) {
			s.Append(alloc, "a")
			s.SetClaimed(1 << 63)
		}, "alloc:a", "alloc:a" + strings.Repeat(" lost:", 1024) + " DAMAGE"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tracetest.NewSpool(t, t.TempDir(), 4711, -1)
			tt.write(s)
			assert.Equal(t, kindsOf(t, s, false), tt.live, "of a live process")
			assert.Equal(t, kindsOf(t, s, true), tt.final, "of a dead process")
		})
	}
}

func TestDamagedSpool(t *testing.T) {
	fill := func(s *tracetest.Spool, n int) {
		for range n {
			s.Fill(s.Claim(), trace.Event{Kind: trace.KindAlloc})
		}
	}
	seg := func(s *tracetest.Spool, n int) string { return filepath.Join(s.Dir, fmt.Sprintf("%06d.seg", n)) }
	t.Run("missing segment", func(t *testing.T) {
		s := tracetest.NewSpool(t, t.TempDir(), 4711, -1)
		fill(s, 2*tracetest.SegmentRecords+5)
		os.Remove(seg(s, 1))
		events, _, damage, err := spool.ReadAll(s.Dir, true)
		assert.That(t, err == nil && len(events) == tracetest.SegmentRecords && strings.Contains(damage, "000001.seg is missing"),
			"%d events, damage %q, error %v", len(events), damage, err)
	})
	t.Run("cut segment", func(t *testing.T) {
		s := tracetest.NewSpool(t, t.TempDir(), 4711, -1)
		fill(s, tracetest.SegmentRecords+5)
		assert.NoError(t, os.Truncate(seg(s, 0), 100*64+30))
		events, _, _, err := spool.ReadAll(s.Dir, true)
		if err != nil || len(events) != tracetest.SegmentRecords+5 || events[99].Kind != trace.KindAlloc || events[100].Kind != trace.KindLost ||
			events[tracetest.SegmentRecords-1].Kind != trace.KindLost || events[tracetest.SegmentRecords].Kind != trace.KindAlloc {
			t.Errorf("%d events, error %v", len(events), err)
		}
	})
	t.Run("newer version", func(t *testing.T) {
		s := tracetest.NewSpool(t, t.TempDir(), 4711, -1)
		patch(t, filepath.Join(s.Dir, "process"), tracetest.ProcessOffsets["version"], 2)
		_, _, _, err := spool.ReadAll(s.Dir, true)
		assert.That(t, errors.Is(err, trace.ErrNewerSchema), "error %v, want a newer schema", err)
	})
	t.Run("other record size", func(t *testing.T) {
		s := tracetest.NewSpool(t, t.TempDir(), 4711, -1)
		patch(t, filepath.Join(s.Dir, "process"), tracetest.ProcessOffsets["record_bytes"], 65)
		_, _, _, err := spool.ReadAll(s.Dir, true)
		assert.That(t, errors.Is(err, trace.ErrDamaged), "error %v, want damage", err)
	})
}

func patch(t *testing.T, path string, at int, value byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	assert.NoError(t, err)
	defer f.Close()
	if _, err := f.WriteAt([]byte{value}, int64(at)); err != nil {
		t.Fatal(err)
	}
}

// seedSpool is a small spool's process file and segment.
func seedSpool(t testing.TB) (process, segment []byte) {
	t.Helper()
	s := tracetest.NewSpool(t, t.TempDir(), 4711, 2)
	s.Append(trace.Event{Kind: trace.KindArena}, "growth=double")
	s.Append(trace.Event{Kind: trace.KindAlloc}, strings.Repeat("long ", 20))
	s.Claim()
	s.Append(trace.Event{Kind: trace.KindFree}, "")
	process, err := os.ReadFile(filepath.Join(s.Dir, "process"))
	assert.NoError(t, err)
	segment, err = os.ReadFile(filepath.Join(s.Dir, "000000.seg"))
	assert.NoError(t, err)
	return process, segment[:64*16]
}

// readDamaged reads a spool of the given files: whatever stands in them, reading ends,
// with no more events than the files have slots and the tail allows.
func readDamaged(t testing.TB, dir string, process, segment, journal []byte) {
	t.Helper()
	for name, b := range map[string][]byte{"process": process, "000000.seg": segment, "strings": journal} {
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	events, _, _, err := spool.ReadAll(dir, true)
	limit := len(segment)/64 + 1024
	assert.Must(t, err != nil || len(events) <= limit, "%d events from %d slots", len(events), len(segment)/64)
}

func TestRandomlyDamagedSpool(t *testing.T) {
	process, segment := seedSpool(t)
	journal := []byte{1, 5, 'h', 'e', 'l', 'l', 'o', 200, 1, 1, 'x'}
	dir := t.TempDir()
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		files := [3][]byte{bytes.Clone(process), bytes.Clone(segment), bytes.Clone(journal)}
		for range 1 + random.IntN(4) {
			b := &files[random.IntN(3)]
			switch at := random.IntN(len(*b) + 1); {
			case at == len(*b) || random.IntN(10) == 0:
				*b = (*b)[:at]
			default:
				(*b)[at] = byte(random.Uint32())
			}
		}
		readDamaged(t, dir, files[0], files[1], files[2])
		assert.Must(t, !t.Failed(), "seed %d", seed)
	}
}

func FuzzSpool(f *testing.F) {
	process, segment := seedSpool(f)
	f.Add(process, segment, []byte{})
	f.Add(process, segment[:64*3+7], []byte{1, 5, 'h', 'e', 'l', 'l', 'o'})
	f.Add(process[:900], segment[:64], []byte{0xff})
	f.Add(process, []byte{}, []byte{1, 200, 1})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, process, segment, journal []byte) {
		readDamaged(t, dir, process, segment, journal)
	})
}
