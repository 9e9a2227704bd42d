// Package summary has the summary of a process: what an analysis of its events found, in at most 200 KB of JSON, so that
// nothing about a job of 1,024 ranks has to read their events again.
//
// A recording has its summaries in the directory summary, a file for each process: RUN/summary/rank0.json. It is one object:
// summary_version, and of the process what run.json and its parts say (run_id, process, pid, rank, local_rank, world_size,
// local_world_size, command, frameworks, host, events, dropped, state, state_reason), its "cards" (device, card, gpu, driver), and
// "rows", each of which is one number:
//
//	device    CUDA ordinal
//	phase     "" for all; one without a name has no rows
//	category  of allocations: weights, activations, …; "" for all
//	tag       of memprof.region(); "" for all
//	metric    as `memprof check --list` names it
//	unit      bytes, share, count or ns
//	value     a number
//	seq       the event after which the value was true; -1 for none
//
// There is every metric that has a value, and what [Allocations] and the constants beside it name.
package summary
