package bfc

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/policies.txt anew")

// Values that each dimension is tried with.
var triedValues = map[string][]string{
	"growth": {"double", "needed", "none", "step:1", "step:67108864", "pages"}, "split": {"classic", "always", "1", "67108864"},
	"small-arenas": {"0", "1048576"}, "trim": {"never", "iteration", "idle:1000000000", "pressure"}, "placement": {"best-fit", "planned"},
	"headroom": {"0", "2147483648"}, "limit": {"0", "1073741824"}, "handle": {"0", "2097152", "536870912"},
}

func TestPolicyTexts(t *testing.T) {
	for _, d := range Dimensions {
		if len(triedValues[d.Name]) == 0 {
			t.Errorf("%s: no value is tried", d.Name)
		}
		for _, text := range triedValues[d.Name] {
			p := Classic()
			if err := d.Set(&p, text, Plain); err != nil {
				t.Fatal(err)
			}
			if got := d.Text(&p, Plain); got != text {
				t.Errorf("%s: Set(%q) is printed as %q", d.Name, text, got)
			}
			back, err := ParseSettings(p.Settings())
			if err != nil || back != p {
				t.Errorf("%s %s: %+v comes back from run.json as %+v, %v", d.Name, text, p, back, err)
			}
		}
	}
}

func TestWrongPolicyTexts(t *testing.T) {
	for name, texts := range map[string][]string{
		"growth":    {"", "Double", "double:1", "step", "step:", "step:0", "step:-1", "step:1M", "growth 4"},
		"split":     {"", "0", "-1", "1M", "Always"},
		"trim":      {"", "idle", "idle:", "idle:0", "idle:-5", "idle:1s", "Never"},
		"placement": {"", "bestfit"}, "headroom": {"", "x", "-1"}, "handle": {"1M"},
	} {
		for _, text := range texts {
			p := Policy{Growth: Step, Step: 7, Split: 9}
			before := p
			if err := DimensionNamed(name).Set(&p, text, Plain); err == nil || !strings.Contains(err.Error(), name) || p != before {
				t.Errorf("%s %q: error %v, policy %+v", name, text, err, p)
			}
		}
	}
	p := Classic()
	err := DimensionNamed("growth").Set(&p, "slow", Plain)
	if want := `unknown growth "slow": use double, needed, none, step:BYTES or pages`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestPresets(t *testing.T) {
	compact, err := PresetNamed("compact")
	want := Policy{Growth: Pages, Split: SplitAlways, Placement: PlacementPlanned, Headroom: 2 << 30}
	if err != nil || compact != want {
		t.Errorf("compact is %+v, %v, want %+v", compact, err, want)
	}
	if classic := Classic(); classic != (Policy{Headroom: 2 << 30}) {
		t.Errorf("classic is %+v", classic)
	}
	if _, err := PresetNamed("tight"); err == nil || err.Error() != `unknown preset "tight": use classic or compact` {
		t.Errorf("error %v", err)
	}
	for _, preset := range Presets {
		for name := range preset.Values {
			if DimensionNamed(name) == nil {
				t.Errorf("%s has a value of %q, which is no dimension", preset.Name, name)
			}
		}
	}
}

// Recordings that were made before a dimension was there have none of its fields.
func TestFieldsOfOlderRecordings(t *testing.T) {
	fields := map[string]string{"growth": "step:4096", "headroom": "5"}
	p, err := ParseFields(func(name string) (string, bool) { text, ok := fields[name]; return text, ok })
	if want := (Policy{Growth: Step, Step: 4096, Headroom: 5}); err != nil || p != want {
		t.Errorf("%+v, %v, want %+v", p, err, want)
	}
	fields["trim"] = "sometimes"
	if _, err := ParseFields(func(name string) (string, bool) { text, ok := fields[name]; return text, ok }); err == nil {
		t.Error("trim=sometimes: no error")
	}
}

// TestPolicyGolden holds testdata/policies.txt, which the allocator in C reproduces, too
// (hooks/twin). It has all values of each dimension on their own, the presets, and for two
// policies all kinds of arenas.
func TestPolicyGolden(t *testing.T) {
	var out bytes.Buffer
	main := Arena{Total: 80 << 30, Granularity: 2 << 20}
	for _, preset := range PresetNames() {
		p, _ := PresetNamed(preset)
		for bits := range 32 {
			a := Arena{
				OtherStream: bits&1 != 0, Pool: bits&2 != 0, Tag: bits&4 != 0, Small: bits&8 != 0, Graphs: bits&16 != 0,
				Total: main.Total, Granularity: main.Granularity,
			}
			writeGolden(&out, p, a)
		}
	}
	for _, d := range Dimensions {
		for _, text := range triedValues[d.Name] {
			p := Classic()
			d.mustSet(&p, text)
			writeGolden(&out, p, main)
		}
	}
	const name = "testdata/policies.txt"
	if *update {
		if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%s differs: run with -update, look at the difference, and change hooks/capture/bfc/policy.c likewise", name)
	}
}

// writeGolden writes the policy and the arena, and what the arena gets, on two lines.
func writeGolden(out *bytes.Buffer, p Policy, a Arena) {
	got := p.ForArena(a)
	fmt.Fprintf(out, "%s stream=%d pool=%d tag=%d small=%d graphs=%d total=%d granularity=%d\n", p.HookOptions(),
		digit(a.OtherStream), digit(a.Pool), digit(a.Tag), digit(a.Small), digit(a.Graphs), a.Total, a.Granularity)
	fmt.Fprintf(out, "  %s limit=%d handle=%d page=%d reservation=%d unmaps=%d fine=%d\n", got.Fields(), got.Limit, got.Handle, got.Page, got.Reservation, digit(got.Unmaps), digit(got.Fine))
}

func digit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A value that people write with units.
func TestUnitsOfPeople(t *testing.T) {
	people := &Units{
		Bytes: "SIZE", Duration: "DURATION", ParseDuration: time.ParseDuration, FormatDuration: time.Duration.String,
		ParseBytes: func(text string) (uint64, error) {
			var n uint64
			_, err := fmt.Sscanf(text, "%dMiB", &n)
			return n << 20, err
		},
		FormatBytes: func(bytes uint64) string { return fmt.Sprintf("%dMiB", bytes>>20) },
	}
	p := Classic()
	for name, text := range map[string]string{"growth": "step:64MiB", "split": "3MiB", "trim": "idle:1.5s"} {
		d := DimensionNamed(name)
		if err := d.Set(&p, text, people); err != nil || d.Text(&p, people) != text {
			t.Errorf("%s %s: %v, printed as %s", name, text, err, d.Text(&p, people))
		}
	}
	if p.Step != 64<<20 || p.Split != 3<<20 || p.Trim.Idle != 1500*time.Millisecond {
		t.Errorf("%+v", p)
	}
	err := DimensionNamed("trim").Set(&p, "idle:-1s", people)
	if err == nil || err.Error() != `trim "idle:-1s": want idle:DURATION with a positive DURATION` {
		t.Errorf("error %v", err)
	}
}
