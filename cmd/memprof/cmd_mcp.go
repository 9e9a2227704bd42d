//go:build !js

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

func newMCPCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp DIR...",
		Short: "Answer a language model's questions about recordings",
		Long: `Serves the Model Context Protocol on standard input and output, for clients that
let a language model call tools. It has eight, which read and never write:

  findings   where the memory went at the peak, and what would need less
  peak       the terms of reserved memory at the peak, and who held them
  live       the same right after any event
  leaks      what keeps rising from iteration to iteration, by line and module
  diff       what changed between two recordings
  fit        what the job reserves and needs under each allocator; a card
  explain    why memory ran out, from a log or the text of an error
  lines      the lines of code that hold memory, at the peak or after an event

An answer is part of what the verb prints with --json (memprof help json), at
most 5,000 bytes of it, which are 2,000 tokens; it says what it leaves out. No
file is read but those in the folders DIR, and no link that leads out of them is
followed. A client needs this entry:

  {"mcpServers": {"memprof": {"command": "memprof", "args": ["mcp", "/runs"]}}}`,
		Annotations: exitCodes("0 the client closed the connection; 2 wrong usage, or no such folder;\n  3 memprof failed"),
		Example: `  memprof mcp .
  claude mcp add memprof -- memprof mcp /runs`,
		Args: someArgs("a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			folders, err := openFolders(args)
			if err != nil {
				return err
			}
			server := &mcpServer{tools: mcpTools(folders), instructions: folders.instructions}
			return server.serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
		ValidArgsFunction: completeDirectories,
	}
}

// mcpTool is a tool as tools/list shows it, and what it does.
type mcpTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema mcpInput        `json:"inputSchema"`
	Annotations map[string]bool `json:"annotations"`

	document func(ctx context.Context, stdout, stderr io.Writer, args mcpArguments) error // prints a verb's JSON
	keep     *mcpKept                                                                     // of that
}

// mcpInput is the JSON Schema of a tool's arguments.
type mcpInput struct {
	Type       string                 `json:"type"`
	Properties map[string]mcpArgument `json:"properties"`
	Required   []string               `json:"required,omitempty"`
	Others     bool                   `json:"additionalProperties"`
}

type mcpArgument struct {
	Type        string `json:"type"`
	Description string `json:"description"`
	Minimum     *int   `json:"minimum,omitempty"`
}

// mcpArguments are those of a call by name: a text, or a number's digits.
type mcpArguments map[string]string

var (
	theRecording = mcpArgument{Type: "string", Description: "path of a recording"}
	theProcess   = mcpArgument{Type: "string", Description: "only this process (rank0, pid4711); default all"}
	theEvent     = mcpArgument{Type: "integer", Description: "number of the event, from 0", Minimum: new(int)}
)

// mcpTools are the tools over the recordings in folders.
func mcpTools(folders mcpFolders) []mcpTool {
	one := map[string]mcpArgument{"recording": theRecording, "process": theProcess}
	at := map[string]mcpArgument{"recording": theRecording, "process": theProcess, "event": theEvent}
	latest := &mcpLatest{make: reportDocument, find: folders.recording}
	tool := func(name, about string, arguments map[string]mcpArgument, required string, keep *mcpKept,
		document func(context.Context, io.Writer, io.Writer, mcpArguments) error) mcpTool {
		return mcpTool{name, about, mcpInput{"object", arguments, strings.Fields(required), false},
			map[string]bool{"readOnlyHint": true, "openWorldHint": false}, document, keep}
	}
	return []mcpTool{
		tool("findings", "Where a job's GPU memory went at its peak, by category; what it reserves and the least card it needs under each allocator; "+
			"changes that need less memory, best first; leaks; failed requests.", one, "recording", keptFindings, latest.print),
		tool("peak", "Memory at the peak of a recording: requested, rounding, slack, pending, stranded, reserve, reusable, external, reserved; "+
			"what held it by category, phase and module; what else was in use on the device.", one, "recording", keptPeak, latest.print),
		tool("live", "Memory right after an event of a recording: the same terms, and what was live by category, phase and module.", at, "recording event", keptLive, latest.print),
		tool("leaks", "Whether memory keeps rising from iteration to iteration, by how much, and which lines, modules and stacks hold it.", one, "recording", keptLeaks, latest.print),
		tool("lines", "The lines of code whose allocations are live at the peak, or after an event, most bytes first. The recording must have stacks.",
			at, "recording", keptLines, latest.print),
		tool("diff", "What changed between two recordings, or two folders of repeated runs: metrics, those with a verdict first, lines, modules, stacks, categories, sizes.",
			map[string]mcpArgument{"base": {Type: "string", Description: "path of the recording to compare with"}, "new": theRecording}, "base new", keptDiff, folders.diff),
		tool("fit", "What the job of a recording would reserve, and the least card it needs, under PyTorch's allocator and memprof's with several settings; "+
			"with card, whether it fits.",
			map[string]mcpArgument{"recording": theRecording, "process": theProcess, "card": {Type: "string", Description: "a size like 80GiB, or a name like H100-80GB"}},
			"recording", keptFit, folders.fit),
		tool("explain", "Why memory ran out, from the text of an out-of-memory error or a log: cause, whose bytes fill the device, what to do.",
			map[string]mcpArgument{"file": {Type: "string", Description: "path of a log"}, "text": {Type: "string", Description: "the error itself, in place of a file"}},
			"", keptExplain, folders.explain),
	}
}

// run answers a call. A panic is an error of that call: the server goes on.
func (t *mcpTool) run(ctx context.Context, given map[string]json.RawMessage) (answer string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("memprof failed: %v", r)
		}
	}()
	args, err := t.arguments(given)
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	if err := t.document(ctx, &stdout, &stderr, args); err != nil {
		if code, _ := exit.Code(err); code != exit.Violated {
			return "", err
		}
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return mcpCompact(stdout.Bytes(), t.keep, stderr.String())
}

// arguments checks those of a call against the tool's.
func (t *mcpTool) arguments(given map[string]json.RawMessage) (mcpArguments, error) {
	args := mcpArguments{}
	for name, raw := range given {
		of, known := t.InputSchema.Properties[name]
		if !known {
			return nil, fmt.Errorf("%s has no argument %.100q", t.Name, name)
		}
		var text string
		var number int64
		switch {
		case of.Type == "string" && json.Unmarshal(raw, &text) == nil && text != "":
			args[name] = text
		case of.Type == "integer" && json.Unmarshal(raw, &number) == nil && number >= 0:
			args[name] = fmt.Sprint(number)
		default:
			return nil, fmt.Errorf("%s: want %s: %s", name, map[string]string{"string": "a text", "integer": "a whole number from 0"}[of.Type], of.Description)
		}
	}
	for _, name := range t.InputSchema.Required {
		if args[name] == "" {
			return nil, fmt.Errorf("%s needs %s: %s", t.Name, name, t.InputSchema.Properties[name].Description)
		}
	}
	return args, nil
}

// reportDocument prints report --json of a recording, or with an event report --at.
func reportDocument(_ context.Context, stdout, stderr io.Writer, path string, args mcpArguments) error {
	opts := reportOptions{formatFlags: formatFlags{JSON: true}, Of: args.processes()}
	var err error
	if args["event"] != "" {
		err = opts.At.Set(args["event"])
	}
	if err := cmp.Or(err, opts.validate()); err != nil {
		return err
	}
	if opts.At.given {
		return opts.at(stdout, stderr, []string{path})
	}
	return opts.processes(stdout, stderr, []string{path})
}

func (f mcpFolders) fit(ctx context.Context, stdout, stderr io.Writer, args mcpArguments) error {
	path, err := f.recording(args)
	if err != nil {
		return err
	}
	opts := fitOptions{formatFlags: formatFlags{JSON: true}, processFlags: args.processes(), Card: args["card"]}
	return opts.run(ctx, stdout, stderr, []string{path})
}

func (f mcpFolders) diff(_ context.Context, stdout, stderr io.Writer, args mcpArguments) error {
	base, err := f.find(args["base"])
	if err != nil {
		return err
	}
	with, err := f.find(args["new"])
	if err != nil {
		return err
	}
	opts := diffOptions{formatFlags: formatFlags{JSON: true}, Top: 1}
	return opts.run(stdout, stderr, []string{base, with})
}

func (f mcpFolders) explain(_ context.Context, stdout, _ io.Writer, args mcpArguments) error {
	if (args["file"] == "") == (args["text"] == "") {
		return fmt.Errorf("explain needs file or text, one of them")
	}
	if args["file"] == "" {
		return noStandardInput(explain(stdout, strings.NewReader(args["text"]), "-", true), "the text")
	}
	folder, below, err := f.at(args["file"])
	if err != nil {
		return err
	}
	file, err := folder.root.OpenFile(below, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return err
	}
	defer file.Close()
	if stat, err := file.Stat(); err != nil || !stat.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", plain.Text(args["file"]))
	}
	return noStandardInput(explain(stdout, file, "-", true), plain.Text(args["file"]))
}

// noStandardInput names what explain read in place of standard input.
func noStandardInput(err error, name string) error {
	if err == nil {
		return nil
	}
	return errors.New(name + strings.TrimPrefix(err.Error(), "standard input"))
}

func (a mcpArguments) processes() (chosen processFlags) {
	if a["process"] != "" {
		chosen.Processes = []string{a["process"]}
	}
	return chosen
}

// recording is the path of a call's recording. One of many processes is not analyzed as a whole: that is what fleets are for.
func (f mcpFolders) recording(args mcpArguments) (string, error) {
	path, err := f.find(args["recording"])
	if err != nil {
		return "", err
	}
	stat, err := os.Stat(path)
	if err != nil || !stat.IsDir() {
		return path, err
	}
	if !isRecording(path) {
		return "", fmt.Errorf("%s is a folder, and no recording: want %s", plain.Text(args["recording"]), listed(f.recordings()))
	}
	names, err := summary.Processes(path)
	if err == nil && len(names) > summary.Most && args["process"] == "" {
		err = fmt.Errorf("the recording has %d processes: choose one with process: %s", len(names), listed(names))
	}
	return path, err
}
