//go:build !js

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report"
)

// recordedSizes is the value of --engine where none is typed.
const recordedSizes = "recorded"

// engine plans the memory of an engine, of the process and device that have least room for tokens.
func (o *fitOptions) engine(stdout io.Writer, runs []recording.Recording) error {
	lists, err := parseLists(o.Engine)
	if err != nil {
		return exit.Usagef("--engine: %w", err)
	}
	_, bytes, err := o.card()
	if err != nil {
		return err
	}
	var least *fit.Plan
	for i := range runs {
		for _, j := range runs[i].FitJobs() {
			for _, result := range runs[i].Results {
				if result.Process != j.Name {
					continue
				}
				plan, err := enginePlan(j, result, bytes, lists)
				if err != nil {
					return exit.Input(err)
				}
				if plan != nil && (least == nil || plan.KV < least.KV) {
					least = plan
				}
			}
		}
	}
	if least == nil {
		return exit.Usagef("%w", fit.ErrNoStart)
	}
	if err := printAs(stdout, o.Format, least, report.EngineSections, report.EngineJSON); err != nil {
		return err
	}
	if least.Left <= 0 {
		return exit.With(exit.Violated)
	}
	return nil
}

// enginePlan is the plan of a process, of the device with least room; nil where it captured no graphs.
func enginePlan(j *fit.Job, result *analysis.Result, card int64, lists map[string][]int64) (least *fit.Plan, err error) {
	for i := range result.Devices {
		d := &result.Devices[i]
		o := fit.PlanOptions{Device: d.Device, Total: d.Total, Card: card, Lists: lists}
		if model, known := accounting.CardNamed(d.GPU); known && model.Memory < d.Total {
			o.Given = model.Memory
		}
		if d.Account != nil {
			o.Others = d.Account.UsedBeforeJob + d.Account.Beside
			for _, use := range d.Account.End.Libraries {
				if strings.Contains(use.Name, "nccl") {
					o.NCCL += use.Bytes
				}
			}
		}
		if d.Held != nil {
			for _, g := range d.Held.Categories.Groups {
				if g.Name == attribution.Workspace.String() {
					o.Workspaces = g.Requested
				}
			}
		}
		plan, err := fit.PlanEngine(j, o)
		switch {
		case errors.Is(err, fit.ErrNoStart):
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", j.Name, err)
		case plan.Total == 0:
			return nil, exit.Usagef("%s: the recording does not say how large the card is: give --card", j.Name)
		}
		if least == nil || plan.KV < least.KV {
			least = plan
		}
	}
	return least, nil
}

// mostSizes bounds the sizes of a list.
const mostSizes = 4096

// parseLists reads sizes of graphs: 1,2,4,8..256/8, of several lists NAME:1,2;NAME:4.
func parseLists(text string) (map[string][]int64, error) {
	lists := map[string][]int64{}
	if text == recordedSizes {
		return lists, nil
	}
	for list := range strings.SplitSeq(text, ";") {
		name, words, named := strings.Cut(list, ":")
		if !named {
			name, words = "", list
		}
		var sizes []int64
		for word := range strings.SplitSeq(words, ",") {
			bounds, step, stepped := strings.Cut(word, "/")
			from, to, ranged := strings.Cut(bounds, "..")
			if !ranged {
				to = from
			}
			if !stepped {
				step = "1"
			}
			var n [3]int64
			for i, number := range []string{from, to, step} {
				var err error
				if n[i], err = strconv.ParseInt(strings.TrimSpace(number), 10, 32); err != nil || n[i] < 1 {
					return nil, fmt.Errorf("%q: want sizes like 1,2,4,8..256/8, or pieces:64..512/64;whole:1,2,4", word)
				}
			}
			for size := n[0]; size <= n[1]; size += n[2] {
				if sizes = append(sizes, size); len(sizes) > mostSizes {
					return nil, fmt.Errorf("%q: more than %d sizes", list, mostSizes)
				}
			}
		}
		if len(sizes) == 0 {
			return nil, fmt.Errorf("%q names no size", list)
		}
		lists[name] = sizes
	}
	return lists, nil
}
