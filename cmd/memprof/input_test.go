package main

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
)

// makeTrace writes a run: maketrace DIR RUN-ID EVENTS EVENTS-A-PART. The events are those
// of an invented training job.
func makeTrace(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 4 {
		ts.Fatalf("usage: maketrace DIR RUN-ID EVENTS EVENTS-A-PART")
	}
	dir, events, part := ts.MkAbs(args[0]), number(ts, args[2]), number(ts, args[3])
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(dataset.WriteInfo(dir, &dataset.Info{ID: args[1], Command: []string{"job"}}))
	w := dataset.NewWriter(dir, dataset.ProcessMeta{RunID: args[1], Name: "pid" + args[1], PID: 1, Rank: -1}, dataset.WriterOptions{PartEvents: part})
	made, texts := tracetest.Training(events)
	ids := make([]int32, len(texts))
	for i, text := range texts {
		ids[i] = w.Intern(text)
	}
	for i := range made {
		made[i].Seq, made[i].Context = int64(i), ids[made[i].Context]
		ts.Check(w.Append(&made[i]))
	}
	ts.Check(w.Finish(dataset.Ending{State: dataset.StateClosed}))
}

func number(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}

// makeNewer gives a part the schema version 9: newer FILE. In the footer a key and its
// value of one byte lie side by side, each behind a type byte and its length.
func makeNewer(ts *testscript.TestScript, _ bool, args []string) {
	const key = "memprof.schema_version"
	file := ts.MkAbs(args[0])
	data, err := os.ReadFile(file)
	ts.Check(err)
	at := bytes.LastIndex(data, []byte(key+"\x18\x01"))
	if at < 0 {
		ts.Fatalf("%s: no %s in its footer", args[0], key)
	}
	data[at+len(key)+2] = '9'
	ts.Check(os.WriteFile(file, data, 0o600))
}

// cutFile takes bytes from the end of a file: cutfile FILE BYTES.
func cutFile(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.MkAbs(args[0])
	info, err := os.Stat(file)
	ts.Check(err)
	ts.Check(os.Truncate(file, info.Size()-int64(number(ts, args[1]))))
}

// noExec makes a file that is there and cannot be executed: noexec FILE.
func noExec(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte("#!/bin/sh\n"), 0o644))
}

// tamper changes a part's events and leaves its checksums: tamper PART remove|byte|swap SEQ.
func tamper(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: tamper PART remove|byte|swap SEQ")
	}
	at := number(ts, args[2])
	ts.Check(dataset.RewritePart(ts.MkAbs(args[0]), func(rows []trace.Event, _ *dataset.Strings) []trace.Event {
		switch args[1] {
		case "remove":
			rows = slices.Delete(rows, at, at+1)
			for i := at; i < len(rows); i++ {
				rows[i].Seq-- // not even a gap to see
			}
		case "byte":
			rows[at].Requested++
		case "swap":
			rows[at], rows[at+1] = rows[at+1], rows[at]
			rows[at].Seq, rows[at+1].Seq = rows[at+1].Seq, rows[at].Seq
		default:
			ts.Fatalf("tamper cannot %s", args[1])
		}
		return rows
	}))
}
