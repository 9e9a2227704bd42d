package trace_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest"
)

// knownContext is a context of testdata/contexts.json, and how it has to be read.
type knownContext struct {
	Writer, Kind, Context, Name string
	Fields                      [][2]string
}

func knownContexts(t testing.TB) []knownContext {
	t.Helper()
	data, err := os.ReadFile("testdata/contexts.json")
	if err != nil {
		t.Fatal(err)
	}
	var known []knownContext
	if err := json.Unmarshal(data, &known); err != nil {
		t.Fatal(err)
	}
	return known
}

// TestKnownContexts: contexts in the forms that every writer has used are read as they were meant.
func TestKnownContexts(t *testing.T) {
	for _, known := range knownContexts(t) {
		kind, ok := trace.ParseKind(known.Kind)
		if !ok {
			t.Fatalf("%s: no kind %q", known.Writer, known.Kind)
		}
		c := trace.ParseContext(kind, known.Context)
		if c.Name() != known.Name {
			t.Errorf("%s: name %q, want %q", known.Writer, c.Name(), known.Name)
		}
		if known.Writer != "a damaged trace" && known.Writer != "job: label of a request" {
			tracetest.CheckContext(t, kind, known.Context)
		}
		fields := [][2]string{}
		first := map[string]string{}
		for name, value := range c.Fields() {
			fields = append(fields, [2]string{name, value})
			if _, again := first[name]; !again {
				first[name] = value
			}
		}
		if diff := cmp.Diff(known.Fields, fields); diff != "" {
			t.Errorf("%s: fields (-want +got):\n%s", known.Writer, diff)
		}
		if diff := cmp.Diff(first, c.Map()); diff != "" {
			t.Errorf("%s: map (-want +got):\n%s", known.Writer, diff)
		}
		for name, value := range first {
			if got, ok := c.Lookup(name); !ok || got != value {
				t.Errorf("%s: Lookup(%q) = %q, %v, want %q", known.Writer, name, got, ok, value)
			}
		}
	}
}

// TestContextOfFormattedFields: fields come back as they were written, but for characters that
// separate; With changes one of them.
func TestContextOfFormattedFields(t *testing.T) {
	names := rapid.StringMatching("[a-z0-9_]{1,8}")
	values := rapid.OneOf(rapid.String(), rapid.StringMatching("[ =\t\n\r\u00a0a-c]*"))
	blanks := strings.NewReplacer("\t", " ", "\n", " ", "\r", " ")
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]trace.Kind{trace.KindPause, trace.KindAlloc, trace.KindOverhead}).Draw(t, "kind")
		written := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) trace.Field {
			return trace.Field{Name: names.Draw(t, "name"), Value: values.Draw(t, "value")}
		}), 0, 6).Draw(t, "fields")
		c := trace.ParseContext(kind, trace.FormatContext(written...))
		read := 0
		for name, value := range c.Fields() {
			if want := written[read]; name != want.Name || value != blanks.Replace(want.Value) {
				t.Fatalf("field %d is %q=%q, want %q=%q", read, name, value, want.Name, want.Value)
			}
			read++
		}
		if read != len(written) {
			t.Fatalf("%d fields, want %d", read, len(written))
		}
		if read == 0 {
			return
		}
		at := rapid.IntRange(0, read-1).Draw(t, "at")
		changed := trace.ParseContext(kind, c.With(written[at].Name, "new\tvalue"))
		for name, value := range c.Map() {
			if name == written[at].Name {
				value = "new value"
			}
			if got := changed.Get(name); got != value {
				t.Fatalf("%q is %q, want %q", name, got, value)
			}
		}
	})
}

// TestNumbersOfContexts: what is no number counts as missing.
func TestNumbersOfContexts(t *testing.T) {
	c := trace.ParseContext(trace.KindKVShare, "a=12\tb=-3\tc=\td=1x\te= 1\tf=99999999999999999999\tg=1")
	for _, test := range []struct {
		name       string
		int, count int64
		is         bool
	}{{"a", 12, 12, false}, {"b", -3, 7, false}, {"c", 7, 7, false}, {"d", 7, 7, false}, {"e", 7, 7, false}, {"f", 7, 7, false}, {"g", 1, 1, true}, {"h", 7, 7, false}} {
		if got := c.Int(test.name, 7); got != test.int {
			t.Errorf("Int(%q) = %d, want %d", test.name, got, test.int)
		}
		if got := c.Count(test.name, 7); got != test.count {
			t.Errorf("Count(%q) = %d, want %d", test.name, got, test.count)
		}
		if got := c.Is(test.name); got != test.is {
			t.Errorf("Is(%q) = %v", test.name, got)
		}
	}
}

// FuzzContext: no text makes a context panic, and the pieces of every context are in its text.
func FuzzContext(f *testing.F) {
	for _, known := range knownContexts(f) {
		kind, _ := trace.ParseKind(known.Kind)
		f.Add(uint8(kind), known.Context)
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		c := trace.ParseContext(trace.Kind(kind), text)
		if !strings.Contains(text, c.Name()) {
			t.Errorf("name %q is not in %q", c.Name(), text)
		}
		for name, value := range c.Fields() {
			if !strings.Contains(text, name+"="+value) {
				t.Errorf("field %q=%q is not in %q", name, value, text)
			}
			if strings.Contains(value, "\t") {
				t.Errorf("the value of %q has a tab: %q", name, value)
			}
		}
	})
}

// TestKindsSayWhatTheyAre: each kind has a name, and each field that a row names is one by the grammar.
func TestKindsSayWhatTheyAre(t *testing.T) {
	for _, info := range trace.Kinds() {
		if !info.Kind.Valid() {
			t.Errorf("%v has a row and is not valid", info.Kind)
		}
		if len(info.Fields) > 0 && info.Context == "" {
			t.Errorf("%v has fields %v in no context", info.Kind, info.Fields)
		}
		for _, name := range info.Fields {
			trace.FormatContext(trace.Field{Name: name}) // panics if it is none
		}
	}
}

func TestKindNamesRoundTrip(t *testing.T) {
	for _, info := range trace.Kinds() {
		if got, ok := trace.ParseKind(info.Kind.String()); !ok || got != info.Kind {
			t.Errorf("ParseKind(%q) = %v, %v", info.Kind.String(), got, ok)
		}
	}
	if _, ok := trace.ParseKind("kind(7)"); ok {
		t.Error("a text that names no kind was parsed")
	}
}
