package main

import (
	"fmt"
	"strings"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report"
)

// Places of help/policies.txt that the table of policies fills in.
const (
	presetsHere    = "{{presets}}"
	dimensionsHere = "{{dimensions}}"
)

// fillPolicies puts the presets and the dimensions of a policy into a help text.
func fillPolicies(text string) string {
	return strings.NewReplacer(presetsHere, presetLines(), dimensionsHere, dimensionLines()).Replace(text)
}

func presetLines() string {
	var out []string
	for _, preset := range bfc.Presets {
		p, err := bfc.PresetNamed(preset.Name)
		if err != nil {
			panic(err) // it is in the table
		}
		var values []string
		for _, d := range bfc.Dimensions {
			if d.Tune != nil && d.Choices[0].Word != "" {
				values = append(values, d.Name+" "+d.Text(&p, report.PolicyUnits))
			}
		}
		out = append(out, helpItem("  "+preset.Name, strings.Join(values, ", ")+": "+preset.Help))
	}
	return strings.Join(out, "\n")
}

func dimensionLines() string {
	var out []string
	for _, d := range bfc.Dimensions {
		if len(d.Choices) == 1 {
			out = append(out, helpItem("--"+d.Name+" "+d.Choices[0].Pattern(report.PolicyUnits), d.Help))
			continue
		}
		out = append(out, helpItem("--"+d.Name, d.Help))
		for i := range d.Choices {
			out = append(out, helpItem("  "+d.Choices[i].Pattern(report.PolicyUnits), d.Choices[i].Help))
		}
	}
	return strings.Join(out, "\n")
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
