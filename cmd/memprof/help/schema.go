package help

import (
	"embed"
	"encoding/json"
	"io/fs"
	"strings"
)

// The JSON documents of the verbs, one file a verb: a line for each place in the document, its path and the types of what can
// stand there. A test of the command line holds them against what the verbs print.
//
//go:embed schema/*.txt
var schemaFiles embed.FS

// documents are NAME.txt of each document.
var documents = func() fs.FS {
	folder, err := fs.Sub(schemaFiles, "schema")
	if err != nil {
		panic(err) // it is embedded
	}
	return folder
}()

// version is of all documents. It rises when a name goes or changes its meaning; names are added within a version.
const version = "1"

// schema is a JSON Schema, draft 2020-12.
type schema struct {
	Dialect    string             `json:"$schema,omitempty"`
	ID         string             `json:"$id,omitempty"`
	Types      []string           `json:"type,omitempty"`
	Properties map[string]*schema `json:"properties,omitempty"`
	Required   []string           `json:"required,omitempty"`
	Others     *schema            `json:"additionalProperties,omitempty"` // of an object with any names
	Items      *schema            `json:"items,omitempty"`
}

// schemaOf is the JSON Schema of a document, made of the lines that describe it.
func schemaOf(name, lines string) string {
	root := &schema{Dialect: "https://json-schema.org/draft/2020-12/schema", ID: "urn:memprof:" + name + ":" + version}
	for line := range strings.Lines(lines) {
		path, types, _ := strings.Cut(strings.TrimSpace(line), " ")
		types = strings.ReplaceAll(strings.TrimSpace(types), "list", "array")
		root.at(path).Types = strings.Split(types, " or ")
	}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // it has texts only
	}
	return string(text)
}

// at returns the schema of the place with a path, and makes those on the way where there are none.
func (s *schema) at(path string) *schema {
	if path == "(all)" {
		return s
	}
	for name := range strings.SplitSeq(path, ".") {
		name, isItem := strings.CutSuffix(name, "[]")
		key, mayLack := strings.CutSuffix(name, "?")
		switch {
		case key == "*":
			s = child(&s.Others)
		case key != "":
			if s.Properties == nil {
				s.Properties = map[string]*schema{}
			}
			of := s.Properties[key]
			if of == nil && !mayLack {
				s.Required = append(s.Required, key)
			}
			s.Properties[key] = child(&of)
			s = of
		}
		if isItem {
			s = child(&s.Items)
		}
	}
	return s
}

// child makes a schema where there is none.
func child(of **schema) *schema {
	if *of == nil {
		*of = &schema{}
	}
	return *of
}
