package main

import "github.com/spf13/pflag"

// frameChoices are what --frames takes.
var frameChoices = []string{"user", "all"}

// framesFlag says which frames of recorded stacks a verb shows. The zero value shows the job's own.
type framesFlag string

func (f *framesFlag) add(flags *pflag.FlagSet) {
	flags.StringVar((*string)(f), "frames", "user", "`frames` of stacks: the job's own (user), or all that were recorded")
}

func (f framesFlag) validate() error {
	if f == "" {
		return nil // a verb without the flag
	}
	return oneOf("frames", string(f), frameChoices...)
}

func (f framesFlag) all() bool { return f == "all" }
