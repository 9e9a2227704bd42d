// Command memprof records where GPU memory goes while a job runs, and reports, verifies,
// checks and replays such recordings.
//
// This folder is the command line and nothing else: one file a verb with its options, its
// flags and a run method. Formats, numbers and drawings belong to the packages it calls.
// web/ is the page of make web, which runs it in a browser on files in memory.
// stdout carries results, stderr everything else. Exit codes are mapped in errors.go.
package main

import "os"

func main() {
	os.Exit(run(os.Stdout, os.Stderr, os.Args[1:]))
}
