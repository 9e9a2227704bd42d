package main

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// schemas are the JSON of each verb, one file a verb: a line for each place in the document, its
// path and the types of what can stand there. A test holds them against what the verbs print.
//
//go:embed schema/*.txt
var schemas embed.FS

const jsonConventions = `What verbs print with --json. Names are stable: they are added to, and what is
there keeps its meaning. Bytes and counts are integers, times integers of
nanoseconds ("_ns"), shares numbers of which 1 is all. Iterations are counted
from 0. What does not exist is null or left out; lists are never null. Terms are
those of the report, metrics those of ` + "`memprof check --list`" + `.

A line of a document is a path and what can stand there: [] is each element of a
list, * any name in an object; ? behind a path says that it may be left out.

` + "`memprof help json VERB`" + ` shows the document of one of:

  %s`

// newJSONTopic is `memprof help json`, and below it a topic for each verb.
func newJSONTopic() *cobra.Command {
	topic := &cobra.Command{Use: "json", Short: "What verbs print with --json", Long: fmt.Sprintf(jsonConventions, strings.Join(schemaNames(), "\n  "))}
	for _, name := range schemaNames() {
		text, err := schemas.ReadFile("schema/" + name + ".txt")
		if err != nil {
			panic(err) // it is embedded
		}
		topic.AddCommand(&cobra.Command{Use: name, Short: "The JSON of " + strings.ReplaceAll(name, "-", " --"), Long: strings.TrimRight(string(text), "\n")})
	}
	topic.SetHelpFunc(func(cmd *cobra.Command, _ []string) { io.WriteString(cmd.OutOrStdout(), cmd.Long+"\n") })
	return topic
}

// schemaNames are the documents there are, in order.
func schemaNames() []string {
	entries, err := schemas.ReadDir("schema")
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
