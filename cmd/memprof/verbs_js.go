package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/dataset"
)

// addVerbs adds the verbs that the page of make web runs, on files that the page has in memory. Nothing else has a meaning there.
func addVerbs(root *cobra.Command) {
	addGroup(root, "Record", newImportCommand())
	addGroup(root, "Read", newReportCommand(), newExplainCommand())
	addGroup(root, "Set up")
}

func (*reportOptions) serve(context.Context, io.Writer, io.Writer, string) error {
	return exit.Usagef("--open: a browser's page cannot serve another")
}

// A page has a copy of a recording, which nobody records or completes.
var openLive = dataset.Open

func completeIfLeft(context.Context, io.Writer, string) {}

// place is the directory of an import, in the page's memory.
type place struct{ Dir string }

func makePlace(output string, _ bool) (place, error) {
	return place{output}, os.MkdirAll(output, 0o755)
}

func (place) Abandon() {}
