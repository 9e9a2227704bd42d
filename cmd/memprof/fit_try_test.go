package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestSubstituted: the value of an argument is replaced in each form, and words that only look like it stay.
func TestSubstituted(t *testing.T) {
	for command, want := range map[string]string{
		"train.py --batch 16 --lr 1":                "train.py --batch 32 --lr 1",
		"train.py --batch=16":                       "train.py --batch=32",
		"train.py -batch 16":                        "train.py -batch 32",
		"train.py batch=16 data.batch=4":            "train.py batch=32 data.batch=4",
		"torchrun -- train.py --batch 8 --batch 16": "torchrun -- train.py --batch 32 --batch 32",
		"train.py batch --batch-size 4 --batches=2": "",
		"train.py --batch":                          "",
		"python3 -c --batch=1=2 other":              "python3 -c --batch=32 other",
	} {
		got, changed := substituted(strings.Fields(command), "batch", "32")
		if !changed {
			got = nil
		}
		assert.Equal(t, strings.Join(got, " "), want, "%s", command)
	}
	for _, name := range []string{"micro_batch", "micro-batch"} {
		got, _ := substituted([]string{"x", "--micro-batch", "1", "--micro_batch=1"}, name, "2")
		assert.That(t, slices.Equal(got, []string{"x", "--micro-batch", "2", "--micro_batch=2"}), "%s: %q", name, got)
	}
}

// TestFlagsOf: a dry run is made again with the flags that it was made with, but for those that it has anyway.
func TestFlagsOf(t *testing.T) {
	var made recordOptions
	flags := pflag.NewFlagSet("record", pflag.ContinueOnError)
	made.addFlags(flags)
	assert.NoError(t, flags.Parse([]string{"--dry-run", "--card", "L4", "--iterations=6", "--preset=compact", "--handle=8MiB", "--stacks=python", "--sim-memory=1GiB"}))
	assert.NoError(t, made.validate())
	settings := made.settings()
	settings["device"], settings["readings"] = "sim", "none"
	assert.Diff(t, []string{"--card=L4", "--handle=8388608B", "--iterations=6", "--preset=compact", "--stacks=python"}, flagsOf(settings))
}
