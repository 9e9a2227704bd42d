package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/spell"
	"github.com/memprof/memprof/report/units"
)

// policyFlags are the flags of a policy, those of `record`; the zero value is not a policy before add.
type policyFlags struct {
	Preset                  presetFlag
	Limit, Headroom, Handle sizeFlag
	Trim                    trimFlag
}

func (f *policyFlags) add(flags *pflag.FlagSet) {
	f.Headroom = bfc.DefaultHeadroom
	f.addReplayed(flags)
	flags.Var(&f.Limit, "limit", "most memory the main arena may reserve; 0: the device's")
	flags.Var(&f.Headroom, "headroom", "free memory that a growth beyond the request leaves to others")
	flags.Var(&f.Handle, "handle", "bytes per CUDA handle, the smallest unit that can be unmapped; 0: up to 32MiB, less where little is free, or 4MiB with --preset compact, or the device's page with --trim")
}

// addReplayed adds the flags that requests by hand take, too.
func (f *policyFlags) addReplayed(flags *pflag.FlagSet) {
	flags.Var(&f.Preset, "preset", "policy of the allocator, by `name`: "+spell.Alternatives(bfc.PresetNames())+" (see memprof help policies)")
	flags.Var(&f.Trim, "trim", "when free memory is unmapped: never, iteration (at its end, the pages that it did not touch) or idle:DURATION (all, when nothing was allocated or freed for so long)")
}

func (f *policyFlags) policy() bfc.Policy {
	return bfc.Policy{Preset: bfc.Preset(f.Preset), Limit: uint64(f.Limit), Headroom: uint64(f.Headroom), Handle: uint64(f.Handle), Trim: bfc.Trim(f.Trim)}
}

type presetFlag bfc.Preset

func (f *presetFlag) String() string { return bfc.Preset(*f).String() }

func (f *presetFlag) Set(text string) error {
	p, err := bfc.ParsePreset(text)
	if err != nil {
		return fmt.Errorf("%w%s", err, spell.DidYouMean(text, bfc.PresetNames()...))
	}
	*f = presetFlag(p)
	return nil
}

// Type is the word that stands for the value in the help.
func (f *presetFlag) Type() string { return "name" }

type trimFlag bfc.Trim

func (f *trimFlag) String() string { return bfc.Trim(*f).Text(time.Duration.String) }

func (f *trimFlag) Set(text string) error {
	t, err := bfc.ParseTrim(text, units.ParseDuration)
	if err != nil {
		return fmt.Errorf("%w%s", err, spell.DidYouMean(text, "never", "iteration"))
	}
	*f = trimFlag(t)
	return nil
}

// Type is the word that stands for the value in the help.
func (f *trimFlag) Type() string { return "trim" }

// completePolicy has the shell offer presets and trims.
func completePolicy(cmd *cobra.Command, idle bool) {
	var presets []cobra.Completion
	for _, p := range bfc.Presets() {
		presets = append(presets, p.String()+"\t"+p.Help())
	}
	mustComplete(cmd, "preset", words(presets...))
	trims := []cobra.Completion{"never", "iteration"}
	if idle {
		trims = append(trims, "idle:500ms\tor another time")
	}
	mustComplete(cmd, "trim", words(trims...))
}
