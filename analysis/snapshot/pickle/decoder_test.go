package pickle

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

var known = []string{"action", "size"}

// What plain values become: one of each kind, and by each opcode of a number.
func TestValues(t *testing.T) {
	text := "\x80\x04(N\x88\x89K\xffM\x00\x01J\xff\xff\xff\xff\x8a\x02\x00\x80G\x3f\xf0\x00\x00\x00\x00\x00\x00\x8c\x04size\x8c\x01x]\x94}h\x00t."
	d := NewDecoder(strings.NewReader(text), 1<<20, known)
	top, err := d.Decode()
	assert.NoError(t, err)
	want := []Value{
		{}, {KindBool, 1}, {KindBool, 0}, {KindInt, 255}, {KindInt, 256}, {KindInt, 1<<64 - 1}, {KindInt, 1<<64 - 0x8000},
		{KindFloat, 0x3ff0000000000000}, {KindText, 1}, {KindText, 2}, {KindList, 0}, {KindDict, 0}, {KindList, 0},
	}
	found := d.Items(top)
	assert.That(t, top.Kind == KindTuple && slices.Equal(found, want), "%v of %v, want %v", found, top, want)
	if text := d.Text(Value{KindText, 2}); text != "x" || d.Text(Value{KindInt, 2}) != "" {
		t.Errorf("text %q", text)
	}
}

// Entries come in their order, with the place of their list, however a pickler adds them, and nothing of them is kept.
func TestEntries(t *testing.T) {
	entry := func(size int) string { return "}(\x8c\x06action\x8c\x01aU\x04sizeK" + string(rune(size)) + "u" }
	for name, text := range map[string]string{
		"at once":    "](](" + entry(1) + entry(2) + "e](" + entry(3) + "ee.",
		"one by one": "]]" + entry(1) + "a" + entry(2) + "aa]" + entry(3) + "aa.",
		"in no list": "}(U\x05trace](](" + entry(1) + entry(2) + "e](" + entry(3) + "eeU\x04host](" + entry(4) + "eu.",
	} {
		d := NewDecoder(strings.NewReader("\x80\x02"+text), 1<<20, known)
		var found []string
		d.Entry = func(items []Value, list int) error {
			found = append(found, fmt.Sprint(list, items[3].N))
			return nil
		}
		top, err := d.Decode()
		if err != nil {
			t.Fatal(name, err)
		}
		want := []string{"0 1", "0 2", "1 3"}
		assert.That(t, slices.Equal(found, want), "%s: entries %q, want %q", name, found, want)
		for _, list := range d.Items(top) {
			items := d.Items(list)
			assert.That(t, len(items) <= 0, "%s: %v is kept", name, items)
		}
	}
}

// A list whose items were replaced has the number instead, and gives back what they took.
func TestReplace(t *testing.T) {
	d := NewDecoder(strings.NewReader("\x80\x04](]](K\x01K\x02ee."), 1<<20, known)
	top, err := d.Decode()
	assert.NoError(t, err)
	lists := d.Items(top)
	_, number, open := d.List(lists[0])
	assert.That(t, !open && number == 0, "a list without items is open %v, and has number %d", open, number)
	before := d.Budget
	d.Replace(lists[1], 7)
	if items, number, open := d.List(lists[1]); open || number != 7 || items != nil || d.Budget != before+2*16 {
		t.Errorf("items %v, number %d, open %v, %d bytes given back", items, number, open, d.Budget-before)
	}
}

// Nothing that names or calls code is run, and what Entry refuses ends the decoding where the entry is.
func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"\x80\x02cos\nsystem\n(U\x04trueo.":             "at byte 2: opcode 0x63: " + ErrCode.Error(),
		"\x80\x02]](}(U\x06actionU\x01aue.":             "at byte 18: refused",
		"\x80\x02}r\xff\xff\xff\xff.":                   "at byte 3: the snapshot needs more memory than it may have",
		"\x80\x02" + strings.Repeat("(", 40_000):        "at byte 32770: the snapshot needs more memory than it may have",
		"\x80\x02}(" + strings.Repeat("NN", 300) + "u.": "at byte 604: a dictionary of 300 keys",
	} {
		d := NewDecoder(strings.NewReader(text), 1<<20, known)
		d.Entry = func([]Value, int) error { return errors.New("refused") }
		_, err := d.Decode()
		assert.That(t, err != nil && err.Error() == want, "%q: %v, want %s", text, err, want)
	}
}

// A mark that has ended counts no more.
func TestMarksEnd(t *testing.T) {
	d := NewDecoder(strings.NewReader("\x80\x02}"+strings.Repeat("(u", 40_000)+"."), 1<<20, known)
	_, err := d.Decode()
	assert.NoError(t, err)
}

// FuzzDecode: no bytes do worse than an error, and none make the decoder keep more than it may.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"\x80\x04}.", "\x80\x02}(X\x06\x00\x00\x00actionK\x01u.", "\x80\x04](K\x01K\x02\x86\x94e.", "\x80\x04\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.",
		"\x80\x04]\x94(}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x06frames]\x94h\x01auh\x01e.",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := NewDecoder(bytes.NewReader(text), 1<<20, known)
		d.Entry = func(items []Value, _ int) error {
			for _, v := range items {
				if v.Kind == KindList {
					if _, _, open := d.List(v); open {
						d.Replace(v, 1)
					}
				}
			}
			return nil
		}
		d.Decode()
		kept := len(d.memo.pages)*numbersPage*8 + len(d.texts) + len(d.tuples)*32
		assert.That(t, kept <= 8<<20, "%d bytes are kept, of a budget of 1 MiB", kept)
	})
}
