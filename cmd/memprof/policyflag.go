package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report"
)

// policyFlags are --preset and a flag for each dimension of a policy. A flag that is given
// overrides the preset, whichever comes first.
type policyFlags struct {
	Preset string
	given  map[*bfc.Dimension]bfc.Policy // a policy that has the flag's value
}

// add adds --preset, and the flags of the dimensions that the verb takes.
func (f *policyFlags) add(flags *pflag.FlagSet, takes func(d *bfc.Dimension) bool) {
	f.given = map[*bfc.Dimension]bfc.Policy{}
	f.Preset = bfc.Presets[0].Name
	flags.StringVar(&f.Preset, "preset", f.Preset, presetHelp())
	for _, d := range bfc.Dimensions {
		if takes(d) {
			flags.Var(&dimensionFlag{dimension: d, of: f}, d.Name, dimensionHelp(d))
		}
	}
}

func presetHelp() string {
	return "policy of the allocator, by `name`: " + plain.Alternatives(bfc.PresetNames()) + " (see memprof help policies); other flags override single values of it"
}

// dimensionHelp is the help of a dimension's flag: what it decides, and its choices.
func dimensionHelp(d *bfc.Dimension) string {
	if len(d.Choices) == 1 {
		return d.Help
	}
	return d.Help + ": " + d.Patterns(report.PolicyUnits)
}

// policy is the preset with what the flags override. The error is of wrong usage.
func (f *policyFlags) policy() (bfc.Policy, error) {
	p, err := bfc.PresetNamed(f.Preset)
	if err != nil {
		return p, fmt.Errorf("--preset: %w%s", err, plain.DidYouMean(f.Preset, bfc.PresetNames()...))
	}
	for _, d := range bfc.Dimensions {
		if from, ok := f.given[d]; ok {
			d.Copy(&p, &from)
		}
	}
	return p, nil
}

// dimensionFlag is the flag of one dimension.
type dimensionFlag struct {
	dimension *bfc.Dimension
	of        *policyFlags
}

func (f *dimensionFlag) String() string {
	p := bfc.Classic()
	if f.of == nil { // pflag makes one to learn the zero value
		return ""
	}
	if given, ok := f.of.given[f.dimension]; ok {
		p = given
	}
	return f.dimension.Text(&p, report.PolicyUnits)
}

func (f *dimensionFlag) Set(text string) error {
	var p bfc.Policy
	if err := setDimension(f.dimension, &p, text); err != nil {
		return err
	}
	f.of.given[f.dimension] = p
	return nil
}

// Type is the word that stands for the value in the help.
func (f *dimensionFlag) Type() string {
	if f.dimension.Choices[0].Word == "" {
		return "size"
	}
	return f.dimension.Name
}

// setDimension gives a policy the value of a text, as people write it.
func setDimension(d *bfc.Dimension, p *bfc.Policy, text string) error {
	err := d.Set(p, text, report.PolicyUnits)
	if err == nil {
		return nil
	}
	var names []string
	for i := range d.Choices {
		if c := &d.Choices[i]; c.Word != "" && c.Amount == bfc.NoAmount {
			names = append(names, c.Word)
		}
	}
	return fmt.Errorf("%w%s", err, plain.DidYouMean(text, names...))
}

// replayFlag is the flag of a dimension for operations written by hand: some values need what
// operations do not have. A growth may also be true or false, as TensorFlow's allow_growth.
type replayFlag struct{ dimensionFlag }

func (f *replayFlag) Set(text string) error {
	if f.dimension.Name == "growth" {
		switch text {
		case "true":
			text = "double"
		case "false":
			text = "none"
		}
	}
	var p bfc.Policy
	if err := setDimension(f.dimension, &p, text); err != nil {
		return err
	}
	if why := f.dimension.Choices[f.dimension.Value(&p).Choice].NoReplay; why != "" {
		return errors.New(f.dimension.Name + " " + text + ": " + why)
	}
	f.of.given[f.dimension] = p
	return nil
}

// addReplayed adds --preset, and the flags of the dimensions that operations can be replayed with.
func (f *policyFlags) addReplayed(flags *pflag.FlagSet) {
	f.add(flags, func(*bfc.Dimension) bool { return false })
	for _, d := range bfc.Dimensions {
		if d.Replay {
			help := dimensionHelp(d)
			if d.Name == "growth" {
				help += "; true, or --growth without a value, is double, and false none"
			}
			flags.Var(&replayFlag{dimensionFlag{dimension: d, of: f}}, d.Name, help)
		}
	}
}

// tuneFlags are the lists of values that `tune` combines, and the presets that it tries instead.
type tuneFlags struct {
	Presets []string
	lists   map[string]*[]string // by the name of the dimension
	flags   *pflag.FlagSet
}

func (f *tuneFlags) add(flags *pflag.FlagSet) {
	f.flags, f.lists = flags, map[string]*[]string{}
	flags.StringSliceVar(&f.Presets, "preset", nil, "try only these presets, with the values of other flags in place of theirs: "+strings.Join(bfc.PresetNames(), ", "))
	for _, d := range bfc.Dimensions {
		if d.Tune == nil {
			continue
		}
		var tried []string
		for _, text := range d.Tune {
			p := bfc.Classic()
			if err := d.Set(&p, text, bfc.Plain); err != nil {
				panic(err) // the table is ours
			}
			tried = append(tried, d.Text(&p, report.PolicyUnits))
		}
		f.lists[d.Name] = flags.StringSlice(d.Name, tried, "values to try, a list: "+dimensionHelp(d))
	}
}

// policies are all combinations of the lists, or of the presets with the lists that were given, and without --handle the
// presets that count pages with other sizes of them, too.
func (f *tuneFlags) policies() ([]bfc.Policy, error) {
	if !f.flags.Changed("preset") {
		all, err := f.combined(bfc.Classic(), func(string) bool { return true })
		if err != nil {
			return nil, err
		}
		return f.withHandles(all), nil
	}
	var all []bfc.Policy
	for _, name := range f.Presets {
		base, err := bfc.PresetNamed(name)
		if err != nil {
			return nil, fmt.Errorf("--preset: %w%s", err, plain.DidYouMean(name, bfc.PresetNames()...))
		}
		more, err := f.combined(base, f.flags.Changed)
		if err != nil {
			return nil, err
		}
		for _, p := range more {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--preset names no preset: use %s", plain.Alternatives(bfc.PresetNames()))
	}
	return f.withHandles(all), nil
}

// triedHandles are sizes of a handle besides the default that growth pages is replayed with, in bytes: smaller ones leave
// less of a page unused, larger ones need fewer driver calls where pages move.
var triedHandles = []uint64{2 << 20, 8 << 20, 16 << 20, 32 << 20}

// withHandles adds the presets with growth pages among the policies with other handles, unless --handle says which.
func (f *tuneFlags) withHandles(policies []bfc.Policy) []bfc.Policy {
	if f.flags.Changed("handle") {
		return policies
	}
	for _, name := range bfc.PresetNames() {
		p, err := bfc.PresetNamed(name)
		if err != nil || p.Growth != bfc.Pages || !slices.Contains(policies, p) {
			continue
		}
		for _, p.Handle = range triedHandles {
			policies = append(policies, p)
		}
	}
	return policies
}

// combined are the combinations of the lists that are taken, with base for the rest.
func (f *tuneFlags) combined(base bfc.Policy, taken func(name string) bool) ([]bfc.Policy, error) {
	choices := tune.Choices{Base: base, Values: map[string][]string{}, Units: report.PolicyUnits}
	for name, list := range f.lists {
		if taken(name) {
			choices.Values[name] = *list
		}
	}
	return choices.Policies()
}

// completePolicy has the shell offer presets, and the values of the dimensions that a verb takes.
func completePolicy(cmd *cobra.Command, offer func(choices ...cobra.Completion) cobra.CompletionFunc, leavesOut func(c *bfc.Choice) bool) {
	var presets []cobra.Completion
	for _, p := range bfc.Presets {
		presets = append(presets, p.Name+"\t"+p.Help)
	}
	mustComplete(cmd, "preset", offer(presets...))
	for _, d := range bfc.Dimensions {
		if cmd.Flags().Lookup(d.Name) == nil || d.Choices[0].Word == "" && d.Tune == nil {
			continue
		}
		var choices []cobra.Completion
		for i := range d.Choices {
			if c := &d.Choices[i]; !leavesOut(c) {
				choices = append(choices, completion(c)...)
			}
		}
		mustComplete(cmd, d.Name, offer(choices...))
	}
}

// completion is a choice as a shell shows it.
func completion(c *bfc.Choice) []cobra.Completion {
	text := c.Word
	if c.Amount != bfc.NoAmount {
		if text != "" {
			text += ":"
		}
		text += c.Example
	}
	if c.Note != "" {
		text += "\t" + c.Note
	}
	if c.Zero {
		return []cobra.Completion{"0", text}
	}
	return []cobra.Completion{text}
}
