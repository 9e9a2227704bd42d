package trace

import (
	"iter"
	"strconv"
	"strings"
)

// Context is the text in the context column of one event, read by the grammar below. Every
// reader of contexts uses this type, and every Go writer [FormatContext]; the C hook and the
// Python package write by the same grammar.
//
//	fields   = [ part *( TAB part ) ]
//	part     = field / malformed
//	field    = name "=" value
//	name     = 1*( "a".."z" / "0".."9" / "_" )
//	value    = *( any character but TAB )
//	TAB      = %x09
//
// What a context is depends on the kind of its event ([KindInfo.Context]):
//
//	fields   most kinds.
//	named    phases: a name up to the first TAB, then fields. The name may contain "=".
//	origin   requests: fields, of which at least one is module, stack, category or name.
//	         Any other text is a label that the job gave to the request.
//	options  arenas: fields. Here a blank (%x20) separates parts too, because the hook writes an
//	         arena's options with blanks between. Only the value of shape, which is the
//	         user's text, goes up to the next TAB.
//	text     one text without fields.
//
// There is no quoting: a writer replaces each TAB, line feed and carriage return in a value by
// a blank. No other character separates, neither a no-break space nor a line end. A value may be
// empty and may contain "=". Of several fields of one name the first counts. A part that is
// no field is skipped, as is a field whose name the reader does not know. A number is decimal
// ASCII with an optional "-"; a value that is no number counts as missing where a number is wanted.
type Context struct {
	text string // the fields, or an origin's label
	name string // of the forms named and text
	form contextForm
}

// contextForm says what a kind's context is.
type contextForm uint8

const (
	formFields contextForm = iota
	formNamed
	formOrigin
	formOptions
	formText
)

// ParseContext reads the context of an event of a kind. It copies nothing; every method scans
// the text, so that parsing costs no allocation.
func ParseContext(kind Kind, text string) Context {
	c := Context{text: text, form: kind.row().form}
	switch c.form {
	case formNamed:
		c.name, c.text, _ = strings.Cut(text, "\t")
	case formText:
		c.name, c.text = text, ""
	}
	return c
}

// Name is the text of a context that is not made of fields: the name of a phase, the label that
// a job gave to a request, the whole context of a kind without fields. Otherwise it is "".
func (c Context) Name() string {
	if c.form != formOrigin {
		return c.name
	}
	for name := range c.Fields() {
		switch name {
		case "module", "stack", "category", "name":
			return ""
		}
	}
	return c.text
}

// Fields are the names and values in the order in which they were written, repeated names
// included.
func (c Context) Fields() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for rest := c.text; rest != ""; {
			var part string
			part, rest = c.cut(rest)
			if name, value, ok := parseField(part); ok && !yield(name, value) {
				return
			}
		}
	}
}

// cut splits a text at the first separator.
func (c Context) cut(text string) (part, rest string) {
	separators := "\t"
	if c.form == formOptions && !strings.HasPrefix(text, "shape=") {
		separators = "\t "
	}
	if i := strings.IndexAny(text, separators); i >= 0 {
		return text[:i], text[i+1:]
	}
	return text, ""
}

func parseField(part string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(part, "=")
	return name, value, ok && isFieldName(name)
}

func isFieldName(name string) bool {
	for i := range len(name) {
		if b := name[i]; (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '_' {
			return false
		}
	}
	return name != ""
}

// Lookup is the value of the first field of a name; ok is false if there is none.
func (c Context) Lookup(name string) (value string, ok bool) {
	for n, v := range c.Fields() {
		if n == name {
			return v, true
		}
	}
	return "", false
}

// Get is the value of the first field of a name, "" if there is none.
func (c Context) Get(name string) string {
	value, _ := c.Lookup(name)
	return value
}

// Is says whether the first field of a name is 1.
func (c Context) Is(name string) bool { return c.Get(name) == "1" }

// Int is the number in the first field of a name, or `missing` if there is none.
func (c Context) Int(name string, missing int64) int64 {
	n, err := strconv.ParseInt(c.Get(name), 10, 64)
	if err != nil {
		return missing
	}
	return n
}

// Count is the number of 0 or more in the first field of a name, or `missing` if there is none.
func (c Context) Count(name string, missing int64) int64 {
	if n := c.Int(name, -1); n >= 0 {
		return n
	}
	return missing
}

// Words are what the blanks in the first field of a name separate, nil if it is missing or empty.
func (c Context) Words(name string) []string {
	return strings.FieldsFunc(c.Get(name), func(r rune) bool { return r == ' ' })
}

// Map has the value of the first field of each name.
func (c Context) Map() map[string]string {
	m := map[string]string{}
	for name, value := range c.Fields() {
		if _, again := m[name]; !again {
			m[name] = value
		}
	}
	return m
}

// Field is a field to be written.
type Field struct{ Name, Value string }

// FormatContext is a context of these fields. It panics if a name is none by the grammar of
// [Context], and replaces what a value cannot contain by blanks.
func FormatContext(fields ...Field) string {
	var text strings.Builder
	for i, f := range fields {
		if !isFieldName(f.Name) {
			panic("trace: " + strconv.Quote(f.Name) + " is no name of a field")
		}
		if i > 0 {
			text.WriteByte('\t')
		}
		text.WriteString(f.Name)
		text.WriteByte('=')
		text.WriteString(cleanValue(f.Value))
	}
	return text.String()
}

// cleanValue has blanks for what would end a value.
var cleanValue = strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace

// With returns the text of a context of fields with another value of its first field `name`. Without such a
// field the text is unchanged.
func (c Context) With(name, value string) string {
	rest := c.text
	for rest != "" {
		part, next := c.cut(rest)
		if n, _, ok := parseField(part); ok && n == name {
			at := len(c.text) - len(rest)
			return c.text[:at] + name + "=" + cleanValue(value) + c.text[at+len(part):]
		}
		rest = next
	}
	return c.text
}
