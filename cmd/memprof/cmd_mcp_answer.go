//go:build !js

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// This file makes answers of memprof mcp from the documents of verbs: the parts that the question is about, and of lists as many
// items as the answer has room for.

// mcpAnswer is how many bytes an answer may have: 2,000 tokens at 2.5 bytes a token. Answers over samples have 3.1 to 3.9 bytes a token of
// o200k and cl100k, numbers alone 2.5.
const mcpAnswer = 5000

// mcpKept is what stays of an object, by name; nil keeps all of a value.
type mcpKept map[string]*mcpKept

// kept is made of paths, names separated by dots. In a path a,b stands for both names.
func kept(paths ...string) *mcpKept {
	root := mcpKept{}
	var add func(at mcpKept, names []string)
	add = func(at mcpKept, names []string) {
		for name := range strings.SplitSeq(names[0], ",") {
			if len(names) == 1 {
				at[name] = nil
				continue
			}
			if at[name] == nil {
				at[name] = &mcpKept{}
			}
			add(*at[name], names[1:])
		}
	}
	for _, path := range paths {
		add(root, strings.Split(path, "."))
	}
	return &root
}

// What the tools keep of documents.
var (
	keptFindings = kept("processes.process", "processes.job.command,exit_status", "processes.events,duration_ns,in_progress,recovered",
		"processes.devices.device,gpu,memory,allocator,summary,max_requested,max_reserved", "processes.devices.ooms.seq,request,free,largest_free,verdict,context",
		"processes.devices.ooms.at.requested,reserved,iteration")
	keptPeak = kept("processes.process", "processes.devices.device,peak,max_requested,max_provided,max_reserved",
		"processes.devices.waste.fragmentation,largest_free", "processes.devices.held_at_peak.categories,phases,modules.groups.name,blocks,requested",
		"processes.devices.held_at_peak.categories,phases,modules.rest_groups", "processes.devices.accounting.used_peak,missing",
		"processes.devices.accounting.peak.libraries,other_libraries,driver_overhead,pools,unexplained,used", "processes.devices.top_sizes.size,blocks,requested")
	keptLive = kept("moments.process,seq,event,time_ns,phase", "moments.devices.device,at,largest_free,iterations_before",
		"moments.devices.held.categories,phases,modules.groups.name,blocks,requested", "moments.devices.held.categories,phases,modules.rest_groups",
		"moments.devices.top_sizes.size,blocks,requested")
	keptLeaks = kept("processes.process", "processes.devices.device", "processes.devices.leak.verdict,per,points,slope,per_second,module,line,blocks,requested",
		"processes.devices.leak.allocations.context,blocks,requested", "processes.devices.leak.stacks.groups.frames,blocks,requested",
		"processes.devices.leak.stacks.rest_groups")
	keptLines = kept("processes.process", "processes.devices.device", "processes.devices.peak.seq,requested", "processes.devices.held_at_peak.stacks.groups.frames,blocks,requested",
		"processes.devices.held_at_peak.stacks.rest_groups,rest", "moments.process,seq", "moments.devices.device", "moments.devices.at.requested",
		"moments.devices.held.stacks.groups.frames,blocks,requested", "moments.devices.held.stacks.rest_groups,rest")
	keptDiff = kept("base,new.runs", "metrics,lines,modules,stacks,categories,sizes.name,unit,outcome,verdict,change,noise",
		"metrics,lines,modules,stacks,categories,sizes.base,new.median")
	keptFit = kept("card", "compared.process,requests,peak_requested,iterations,iteration_ns", "processes.process,device,failed_requests,driver_overhead_bytes,other_libraries_bytes",
		"rows.allocator,setting,preset,handle,trim,peak_reserved,least_card,least_card_without_workspaces,slowdown,calls,recorded,recommended,fits",
		"rows.within_band,margin_bytes,failing_request,command,refused", "helps")
	keptExplain *mcpKept
)

// pick decodes what is kept of a document. Numbers keep their digits. What is null goes, and rows of a diff that have not changed.
func (k *mcpKept) pick(raw json.RawMessage) (any, error) {
	switch {
	case k == nil:
		var value any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		err := d.Decode(&value)
		return withoutNulls(value), err
	case len(raw) > 0 && raw[0] == '[':
		var items []json.RawMessage
		err := json.Unmarshal(raw, &items)
		list := []any{}
		for _, item := range items {
			value, wrong := k.pick(item)
			if err == nil {
				err = wrong
			}
			if object, ok := value.(map[string]any); !ok || object["outcome"] != "same" {
				list = append(list, value)
			}
		}
		return list, err
	case len(raw) > 0 && raw[0] == '{':
		var fields map[string]json.RawMessage
		err := json.Unmarshal(raw, &fields)
		object := map[string]any{}
		for name, below := range *k {
			if fields[name] == nil || string(fields[name]) == "null" {
				continue
			}
			value, wrong := below.pick(fields[name])
			if object[name] = value; err == nil {
				err = wrong
			}
		}
		return object, err
	}
	return nil, nil
}

func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, of := range value {
			if withoutNulls(of); of == nil {
				delete(value, name)
			}
		}
	case []any:
		for _, of := range value {
			withoutNulls(of)
		}
	}
	return value
}

// mcpCompact is the answer with what is kept of a document, and the warnings that came with it.
func mcpCompact(document []byte, keep *mcpKept, warnings string) (string, error) {
	value, err := keep.pick(bytes.TrimSpace(document))
	object, ok := value.(map[string]any)
	if err != nil || !ok {
		return "", fmt.Errorf("the verb printed no JSON object: %v", err)
	}
	judgedFirst(object)
	for _, most := range []int{1 << 30, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1} {
		left := map[string]int{}
		short, _ := shorten(object, "", most, left).(map[string]any)
		if warnings != "" {
			short["warnings"] = mcpCut(strings.TrimSpace(warnings), 500)
		}
		if len(left) > 0 {
			short["left_out"] = left
		}
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if err := e.Encode(short); err != nil {
			return "", err
		}
		if text.Len() <= mcpAnswer {
			return strings.TrimSuffix(text.String(), "\n"), nil
		}
	}
	return "", fmt.Errorf("the answer has no room for a single process: choose one with process")
}

// judgedFirst puts the metrics of a diff first that are better or worse.
func judgedFirst(document map[string]any) {
	metrics, _ := document["metrics"].([]any)
	slices.SortStableFunc(metrics, func(a, b any) int { return unjudged(a) - unjudged(b) })
}

func unjudged(metric any) int {
	if object, _ := metric.(map[string]any); object["verdict"] != nil {
		return 0
	}
	return 1
}

// shorten copies a value with at most so many items of each list, and counts those left out by the path of their list. Where lists
// are short already, texts are, too.
func shorten(value any, path string, most int, left map[string]int) any {
	switch value := value.(type) {
	case map[string]any:
		short := map[string]any{}
		for name, of := range value {
			short[name] = shorten(of, strings.TrimPrefix(path+"."+name, "."), most, left)
		}
		return short
	case []any:
		n := min(len(value), most)
		if n < len(value) {
			left[path] += len(value) - n
		}
		short := make([]any, n)
		for i := range short {
			short[i] = shorten(value[i], path, most, left)
		}
		return short
	case string:
		return mcpCut(value, max(100, min(400, 50*most)))
	}
	return value
}

// mcpCut returns at most so many bytes of a text, with "…" in place of the rest.
func mcpCut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	most -= len("…")
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
