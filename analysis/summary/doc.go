// Package summary has the summary of a process: what an analysis of its events found, in at most 200 KB of JSON, so that
// nothing about a job of 1,024 ranks has to read their events again.
//
// A recording has its summaries in the directory summary, a file for each process: RUN/summary/rank0.json. It is one object:
// summary_version, and of the process what run.json and its parts say (run_id, process, pid, rank, local_rank, world_size,
// local_world_size, command, frameworks, host, events, dropped, state, state_reason), its "cards" (device, card, gpu, driver), and
// "rows", each of which is one number:
//
//	device      CUDA ordinal
//	iteration   number of the iteration, from 0; -1 for the whole process
//	iterations  how many iterations from there on the row is of: 1, or more in long jobs; 0 for the whole process
//	phase       "" for all; one without a name has no rows
//	category    of allocations: weights, activations, …; "" for all
//	tag         of memprof.region(); "" for all
//	metric      as `memprof check --list` names it
//	unit        bytes, share, count or ns
//	value       a number
//	seq         the event after which the value was true; -1 for none
//
// Of the whole process there is every metric that has a value, and what [Allocations] and the constants beside it name. An
// iteration has its greatest requested, provided and reserved bytes, and what was live at its end and at its moment of most
// requested bytes by category. Where the file would exceed [MostBytes], neighbouring iterations become one, until it does not:
// greatest values stay greatest, counts and durations are added.
package summary
