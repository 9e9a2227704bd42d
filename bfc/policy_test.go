package bfc

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

var update = flag.Bool("update", false, "write testdata/policies.txt anew")

func TestPresets(t *testing.T) {
	for _, p := range Presets() {
		got, err := ParsePreset(p.String())
		assert.That(t, err == nil && got == p, "%v is read as %v, %v", p, got, err)
	}
	assert.Equal(t, Compact.Policy(), Policy{Preset: Compact, Headroom: 2 << 30}, "compact")
	_, err := ParsePreset("tight")
	assert.That(t, err != nil && err.Error() == `unknown preset "tight": use classic or compact`, "error %v", err)
}

func TestTrimTexts(t *testing.T) {
	for _, want := range triedTrims {
		got, err := ParseTrim(want.String(), ParseNanoseconds)
		assert.That(t, err == nil && got == want, "%s is read as %v, %v", want, got, err)
	}
	for _, text := range []string{"", "idle", "idle:", "idle:0", "idle:-5", "idle:1s", "Never", "pressure"} {
		_, err := ParseTrim(text, ParseNanoseconds)
		assert.That(t, err != nil && strings.Contains(err.Error(), "trim"), "%q: error %v", text, err)
	}
	got, err := ParseTrim("idle:1.5s", time.ParseDuration)
	assert.That(t, err == nil && got.Idle == 1500*time.Millisecond && got.Text(time.Duration.String) == "idle:1.5s", "%v, %v", got, err)
}

// Each policy's arenas are read as what they have, and those of policies that were removed are refused.
func TestFields(t *testing.T) {
	for _, preset := range Presets() {
		for _, trim := range triedTrims {
			p := Policy{Preset: preset, Headroom: 5, Trim: trim}
			want := p.ForArena(Arena{Total: gib, Granularity: 2 * mib}).Options
			want.Limit = 0
			got, err := parseFields("main=1 " + want.Fields())
			assert.That(t, err == nil && got == want && got.Preset() == preset, "%s: %+v, %v", want.Fields(), got, err)
		}
	}
	for text, want := range map[string]Options{
		"growth=double main=1 headroom=5":                 {Headroom: 5},
		"growth=double main=1 placement=best-fit below=0": {},
		"growth=needed split=always":                      {Growth: Needed, Split: SplitAlways},
	} {
		got, err := parseFields(text)
		assert.That(t, err == nil && got == want, "%s: %+v, %v", text, got, err)
	}
	for text, want := range map[string]string{
		"growth=needed main=1":                        "growth=needed",
		"growth=step:4096":                            "growth=step:4096",
		"growth=none main=1":                          "growth=none",
		"growth=double split=always main=1":           "split=always",
		"growth=double split=4096":                    "split=4096",
		"growth=pages split=classic main=1":           "split=classic",
		"growth=pages split=always placement=planned": "placement=planned",
		"growth=double below=1048576":                 "below=1048576",
		"growth=double trim=pressure":                 "trim=pressure",
	} {
		want = "the recording has a policy that this version no longer has, " + want + ": record the job again"
		_, err := parseFields(text)
		assert.That(t, errors.Is(err, ErrGone) && err.Error() == want, "%s: %v", text, err)
	}
	for _, text := range []string{"trim=sometimes", "headroom=much", "growth=thrice", "placement=anywhere"} {
		_, err := parseFields(text)
		assert.That(t, err != nil && !errors.Is(err, ErrGone), "%s: %v", text, err)
	}
}

func parseFields(text string) (Options, error) {
	fields := map[string]string{}
	for _, field := range strings.Fields(text) {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	return ParseFields(func(name string) (string, bool) { value, ok := fields[name]; return value, ok })
}

var triedTrims = []Trim{{}, {When: TrimIteration}, {TrimIdle, time.Second}}

// TestPolicyGolden holds testdata/policies.txt, which the allocator in C reproduces, too
// (hooks/twin): all kinds of arenas under both presets, and the other settings on their own.
func TestPolicyGolden(t *testing.T) {
	var out bytes.Buffer
	main := Arena{Total: 80 << 30, Granularity: 2 << 20}
	for _, preset := range Presets() {
		for bits := range 16 {
			a := Arena{OtherStream: bits&1 != 0, Pool: bits&2 != 0, Tag: bits&4 != 0, Graphs: bits&8 != 0, Total: main.Total, Granularity: main.Granularity}
			writeGolden(&out, preset.Policy(), a)
		}
		for _, p := range []Policy{{Limit: gib}, {Handle: 2 * mib}, {Handle: 512 * mib}, {Trim: triedTrims[1]}, {Trim: triedTrims[2]}} {
			p.Preset = preset
			writeGolden(&out, p, main)
		}
	}
	const name = "testdata/policies.txt"
	if *update {
		assert.NoError(t, os.WriteFile(name, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(name)
	assert.NoError(t, err)
	assert.That(t, bytes.Equal(out.Bytes(), want),
		"%s differs: run with -update, look at the difference, and change hooks/capture/bfc/policy.c likewise", name)
}

// writeGolden writes the policy and the arena, and what the arena gets, on two lines.
func writeGolden(out *bytes.Buffer, p Policy, a Arena) {
	got := p.ForArena(a)
	fmt.Fprintf(out, "%s stream=%d pool=%d tag=%d graphs=%d total=%d granularity=%d\n", p.HookOptions(),
		digit(a.OtherStream), digit(a.Pool), digit(a.Tag), digit(a.Graphs), a.Total, a.Granularity)
	fmt.Fprintf(out, "  %s limit=%d handle=%d page=%d reservation=%d fine=%d\n", got.Fields(), got.Limit, got.Handle, got.Page, got.Reservation, digit(got.Fine))
}

func digit(b bool) int {
	if b {
		return 1
	}
	return 0
}
