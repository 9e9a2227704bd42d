// Package help has the topics of `memprof help`: texts, and the JSON documents of the verbs.
package help

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/bfc"
)

// topics are the texts of `memprof help TOPIC`, one file a topic: a line that says what it is about, an
// empty line, and text of at most 80 columns. The name of the file is the topic's.
//
//go:embed *.txt
var topics embed.FS

// Topics returns a command for each topic. Cobra lists commands that cannot be run as help topics.
func Topics() []*cobra.Command {
	commands := []*cobra.Command{
		newJSONTopic("json", "What verbs print with --json", func(_, lines string) string { return lines }),
		newJSONTopic("json-schema", "The same as JSON Schemas", schemaOf), newEventsTopic(),
	}
	for _, name := range textNames(topics) {
		commands = append(commands, newTopic(name, firstLine(topics, name), func() string {
			_, text, _ := strings.Cut(readText(topics, name), "\n\n")
			return filled(text)
		}))
	}
	return commands
}

// newTopic returns a command whose help is text and nothing else. The text is made when it is asked for: every start of memprof makes
// the commands, and all texts took a fifth of its page faults.
func newTopic(name, short string, text func() string) *cobra.Command {
	topic := &cobra.Command{Use: name, Short: short}
	topic.SetHelpFunc(func(cmd *cobra.Command, _ []string) { io.WriteString(cmd.OutOrStdout(), text()+"\n") })
	return topic
}

// firstLine returns the first line of a text, without reading all of it.
func firstLine(folder fs.FS, name string) string {
	file, err := folder.Open(name + ".txt")
	if err != nil {
		panic(err) // it is embedded
	}
	defer file.Close()
	var begin [256]byte
	n, err := file.Read(begin[:])
	if err != nil {
		panic(err) // it is embedded, and not empty
	}
	line, _, _ := strings.Cut(string(begin[:n]), "\n")
	return line
}

// textNames returns the names of the texts in an embedded folder, in order, without ".txt".
func textNames(folder fs.FS) []string {
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		panic(err) // it is embedded
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".txt"))
	}
	slices.Sort(names)
	return names
}

func readText(folder fs.FS, name string) string {
	text, err := fs.ReadFile(folder, name+".txt")
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.TrimRight(string(text), "\n")
}

const jsonConventions = `What verbs print with --json. Names are stable: they are added to, and what is
there keeps its meaning. Bytes and counts are integers, times integers of
nanoseconds ("_ns"), shares numbers from 0 to 1 (the whole). Iterations are
counted from 0. What does not exist is null or left out; lists are never null.
Terms are those of the report, metrics those of ` + "`memprof check --list`" + `.

A line of a document is a path and what can stand there: [] is each element of a
list, * any name in an object; ? behind a path says that it may be left out.

` + "`memprof help json VERB`" + ` shows the document of one of these, and
` + "`memprof help json-schema VERB`" + ` its JSON Schema:

  %s`

// newJSONTopic is `memprof help json`, or of the schemas, and below it a topic for each verb.
func newJSONTopic(name, short string, of func(document, lines string) string) *cobra.Command {
	names := Documents()
	topic := newTopic(name, short, func() string { return fmt.Sprintf(jsonConventions, strings.Join(names, "\n  ")) })
	for _, document := range names {
		topic.AddCommand(newTopic(document, "The JSON of "+strings.ReplaceAll(document, "-", " --"), func() string { return of(document, readText(documents, document)) }))
	}
	return topic
}

// Documents returns the names of the documents there are, in order.
func Documents() []string { return textNames(documents) }

// filled puts what the code says itself into a help text: the presets, and the rules of the categories.
func filled(text string) string {
	var presets, categories []string
	for _, p := range bfc.Presets() {
		presets = append(presets, helpItem("  "+p.String(), p.Help()))
	}
	for c := attribution.Weights; c <= attribution.Other; c++ {
		categories = append(categories, helpItem("  "+c.String(), c.Rule()))
	}
	return strings.NewReplacer("{{presets}}", strings.Join(presets, "\n"), "{{categories}}", strings.Join(categories, "\n")).Replace(text)
}

// helpItem is a term and what it means in a second column, in lines of at most 80 characters.
func helpItem(term, meaning string) string {
	const column, width = 16, 80
	line := fmt.Sprintf("%-*s", column-1, term)
	if len(term) >= column {
		line = term + "\n" + strings.Repeat(" ", column-1)
	}
	last := strings.LastIndexByte(line, '\n') + 1
	for _, word := range strings.Fields(meaning) {
		if len(line)-last+1+len(word) > width {
			line += "\n" + strings.Repeat(" ", column-1)
			last = len(line) - column + 1
		}
		line += " " + word
	}
	return line
}
