package help

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/trace"
)

const eventsIntro = `What happened, and what the columns addr, requested, provided and context hold.
They are in bytes, addresses included, unless another unit is named; a column
that is not named is 0. Fields are the names that a context may have. Columns of
every event: memprof help trace.
`

// newEventsTopic is `memprof help events`: the table of trace/kind.go.
func newEventsTopic() *cobra.Command {
	return newTopic("events", "The kinds of events, and what their columns hold", func() string {
		lines := []string{eventsIntro}
		for _, kind := range trace.Kinds() {
			lines = append(lines, helpItem(kind.Name, kind.Says))
			for _, column := range kind.Columns() {
				lines = append(lines, helpItem("  "+column.Name, column.Holds))
			}
			if len(kind.Fields) > 0 {
				lines = append(lines, helpItem("  fields", strings.Join(kind.Fields, " ")))
			}
		}
		return strings.Join(lines, "\n")
	})
}
