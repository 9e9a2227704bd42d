//go:build !js

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/summary"
	"github.com/memprof/memprof/trace/dataset"
)

// asked is what --try asks for: values of an argument of the job, or a range in which the largest that fits is looked for.
type asked struct {
	name     string
	values   []string
	from, to int // of a range; else 0
}

func parseTry(text string) (a asked, err error) {
	name, list, ok := strings.Cut(text, "=")
	a.name, a.values = strings.TrimLeft(name, "-"), strings.Split(list, ",")
	if !ok || a.name == "" || slices.Contains(a.values, "") {
		return a, exit.Usagef("--try %q: want an argument of the job and its values, batch=16,32,64, or a range, batch=16..512", text)
	}
	if from, to, isRange := strings.Cut(list, ".."); isRange {
		var errs [2]error
		a.from, errs[0] = strconv.Atoi(from)
		a.to, errs[1] = strconv.Atoi(to)
		if errors.Join(errs[:]...) != nil || a.from < 1 || a.to <= a.from {
			return a, exit.Usagef("--try %q: want a range of whole numbers from 1 on, batch=16..512", text)
		}
	}
	return a, nil
}

// substituted is a command with another value of an argument: "--batch 16", "--batch=16", "batch=16". changed says whether it has one.
func substituted(command []string, name, value string) (with []string, changed bool) {
	same := func(word string) bool {
		return strings.ReplaceAll(word, "_", "-") == strings.ReplaceAll(name, "_", "-")
	}
	with = slices.Clone(command)
	for i, word := range command {
		bare := strings.TrimLeft(word, "-")
		key, _, valued := strings.Cut(bare, "=")
		switch {
		case !same(key):
		case valued:
			with[i], changed = word[:len(word)-len(bare)]+key+"="+value, true
		case bare != word && i+1 < len(command):
			with[i+1], changed = value, true
		}
	}
	return with, changed
}

// trier makes dry runs of the job of a plan.
type trier struct {
	asked
	plan     *dataset.Info
	card     int64
	folder   string
	self     string // the program of memprof
	stderr   io.Writer
	variable string // that takes PyTorch's settings
}

// try answers by dry runs of the plan's job with other values of an argument.
func (o *fitOptions) try(ctx context.Context, stdout, stderr io.Writer, paths []string) (err error) {
	t := trier{stderr: stderr}
	if t.asked, err = parseTry(o.Try); err != nil {
		return err
	}
	if len(paths) != 1 || o.All || o.given() {
		return exit.Usagef("--try takes one plan, without --all and --process")
	}
	run, err := openRun(paths[0])
	if err != nil {
		return err
	}
	if t.plan = &run.Info; t.plan.Source != dataset.DryRun {
		return exit.Usagef("%s is no dry run: --try starts the job again without a GPU, as memprof record --dry-run does", paths[0])
	}
	if _, changed := substituted(t.plan.Command, t.name, ""); !changed {
		return exit.Usagef("--try: the plan's command has no argument %s: make a plan with one, as --%s VALUE, --%s=VALUE or %s=VALUE; it is %s",
			t.name, t.name, t.name, t.name, plain.Text(strings.Join(t.plan.Command, " ")))
	}
	result := &report.FitTries{Argument: t.name}
	o.Card = cmp.Or(o.Card, t.plan.Options["card"])
	if result.Card, result.Bytes, err = o.card(); err != nil {
		return err
	}
	t.card = result.Bytes
	if t.self, err = os.Executable(); err != nil {
		return err
	}
	if t.folder, err = os.MkdirTemp("", "memprof-try-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(t.folder)) }()
	if result.Tries, err = t.all(ctx); err != nil {
		return err
	}
	result.Variable = t.variable
	if t.to > 0 {
		result.End = strconv.Itoa(t.to)
	}
	if err := printAs(stdout, o.Format, result, report.FitTrySections, report.FitTryJSON); err != nil || result.Largest() != nil {
		return err
	}
	return exit.With(exit.Violated)
}

// all tries the values that were asked for, or bisects: if a value does not fit, greater ones are taken not to fit either.
func (t *trier) all(ctx context.Context) (tries []report.FitTry, err error) {
	one := func(value string) (fits bool, err error) {
		try, err := t.one(ctx, value)
		if err == nil {
			tries = append(tries, *try)
			fits = try.Fits()
		}
		return fits, err
	}
	if t.to == 0 {
		for _, value := range t.values {
			if _, err := one(value); err != nil {
				return nil, err
			}
		}
		return tries, nil
	}
	from, to := t.from, t.to // the job fits with from, and does not with to
	for _, end := range []int{from, to} {
		fits, err := one(strconv.Itoa(end))
		if err != nil {
			return nil, err
		}
		if fits == (end == to) {
			from = to // there is nothing between
			break
		}
	}
	for to-from > 1 {
		middle := from + (to-from)/2
		fits, err := one(strconv.Itoa(middle))
		switch {
		case err != nil:
			return nil, err
		case fits:
			from = middle
		default:
			to = middle
		}
	}
	slices.SortFunc(tries, func(a, b report.FitTry) int {
		return cmp.Or(cmp.Compare(len(a.Value), len(b.Value)), cmp.Compare(a.Value, b.Value))
	})
	return tries, nil
}

// one makes a dry run with a value and finds what it needs.
func (t *trier) one(ctx context.Context, value string) (*report.FitTry, error) {
	plan := filepath.Join(t.folder, "plan")
	command, _ := substituted(t.plan.Command, t.name, value)
	args := slices.Concat([]string{"record", "--dry-run", "--quiet", "--force", "-o", plan}, flagsOf(t.plan.Options), []string{"--"}, command)
	var said bytes.Buffer
	job := exec.CommandContext(ctx, t.self)
	job.Args, job.Stdout, job.Stderr = append([]string{"memprof"}, args...), &said, &said
	if err := job.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return nil, exit.Usagef("--try %s=%s: the dry run: %w: %s", t.name, value, err, plain.Shorten(lines[len(lines)-1], 200))
	}
	runs, err := analyzeWith([]string{plan}, analysis.Options{})
	if err != nil {
		return nil, err
	}
	jobs := runs[0].FitJobs()
	if len(jobs) == 0 {
		return nil, exit.Usagef("--try %s=%s: the job allocates nothing", t.name, value)
	}
	options := fit.Options{Card: t.card}
	for _, held := range fit.Choices(jobs[0]) {
		options.Allocators = append(options.Allocators, held.Allocator)
	}
	answer, err := fit.Find(ctx, jobs, options)
	if err != nil {
		return nil, exit.Input(err)
	}
	try := &report.FitTry{Value: value, Rows: answer.Rows}
	for _, result := range runs[0].Results {
		t.variable = summary.Variable(result)
		for i := range result.Devices {
			if most := result.Devices[i].MaxT; most > try.Requested.Greatest {
				try.Requested = plain.BandOf(most)
			}
		}
	}
	for i := range answer.Processes {
		if band := answer.Processes[i].Requested; band.Greatest > try.Requested.Greatest {
			try.Requested = band
		}
	}
	screen.Remark(t.stderr, "dry run", fmt.Sprintf("%s %s: %s requested", t.name, value, try.Requested))
	return try, nil
}

// flagsOf are the flags of record that a dry run was made with, but for those of its device, which every dry run has alike.
func flagsOf(settings map[string]string) (args []string) {
	var options recordOptions
	flags := pflag.NewFlagSet("record", pflag.ContinueOnError)
	options.addFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := settings[strings.ReplaceAll(f.Name, "-", "_")]
		if !ok || f.Name == "device" || f.Name == "sim-memory" {
			return
		}
		before := f.Value.String()
		if f.Value.Set(value) != nil {
			value += "B" // a size
		}
		if f.Value.Set(value) == nil && f.Value.String() != before {
			args = append(args, "--"+f.Name+"="+value)
		}
	})
	return args
}
