package trace_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// knownContext is a context of testdata/contexts.json, and how it has to be read.
type knownContext struct {
	Writer, Kind, Context, Name string
	Fields                      [][2]string
}

func knownContexts(t testing.TB) []knownContext {
	t.Helper()
	data, err := os.ReadFile("testdata/contexts.json")
	assert.NoError(t, err)
	var known []knownContext
	assert.NoError(t, json.Unmarshal(data, &known))
	return known
}

// TestKnownContexts: contexts in the forms that every writer has used are read as they were meant.
func TestKnownContexts(t *testing.T) {
	for _, known := range knownContexts(t) {
		kind, ok := trace.ParseKind(known.Kind)
		assert.Must(t, ok, "%s: no kind %q", known.Writer, known.Kind)
		c := trace.ParseContext(kind, known.Context)
		assert.Equal(t, c.Name(), known.Name, "%s: name", known.Writer)
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
		assert.Diff(t, known.Fields, fields, "%s: fields", known.Writer)
		assert.Diff(t, first, c.Map(), "%s: map", known.Writer)
		for name, value := range first {
			got, ok := c.Lookup(name)
			assert.That(t, ok && got == value, "%s: Lookup(%q) = %q, %v, want %q", known.Writer, name, got, ok, value)
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
		assert.Must(t, read == len(written), "%d fields, want %d", read, len(written))
		if read == 0 {
			return
		}
		at := rapid.IntRange(0, read-1).Draw(t, "at")
		changed := trace.ParseContext(kind, c.With(written[at].Name, "new\tvalue"))
		for name, value := range c.Map() {
			if name == written[at].Name {
				value = "new value"
			}
			got := changed.Get(name)
			assert.Must(t, got == value, "%q is %q, want %q", name, got, value)
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
		assert.Equal(t, c.Int(test.name, 7), test.int, "Int(%q)", test.name)
		assert.Equal(t, c.Count(test.name, 7), test.count, "Count(%q)", test.name)
		assert.Equal(t, c.Is(test.name), test.is, "Is(%q)", test.name)
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
		assert.That(t, strings.Contains(text, c.Name()), "name %q is not in %q", c.Name(), text)
		for name, value := range c.Fields() {
			assert.That(t, strings.Contains(text, name+"="+value), "field %q=%q is not in %q", name, value, text)
			assert.That(t, !strings.Contains(value, "\t"), "the value of %q has a tab: %q", name, value)
		}
	})
}

// TestKindsSayWhatTheyAre: each kind has a name, and each field that a row names is one by the grammar.
func TestKindsSayWhatTheyAre(t *testing.T) {
	for _, info := range trace.Kinds() {
		assert.That(t, info.Kind.Valid(), "%v has a row and is not valid", info.Kind)
		assert.That(t, len(info.Fields) <= 0 || info.Context != "", "%v has fields %v in no context", info.Kind, info.Fields)
		for _, name := range info.Fields {
			trace.FormatContext(trace.Field{Name: name}) // panics if it is none
		}
	}
}

func TestKindNamesRoundTrip(t *testing.T) {
	for _, info := range trace.Kinds() {
		got, ok := trace.ParseKind(info.Kind.String())
		assert.That(t, ok && got == info.Kind, "ParseKind(%q) = %v, %v", info.Kind.String(), got, ok)
	}
	_, ok := trace.ParseKind("kind(7)")
	assert.That(t, !ok, "a text that names no kind was parsed")
}
