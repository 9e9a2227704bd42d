// Package summary has the summary table of a process: what an analysis of its events found, in at most 100 KB of Parquet, so that
// nothing about a job of 1,024 ranks has to read their events again.
//
// A recording has its summaries in the directory summary, a file for each process: RUN/summary/rank0.parquet. It is a table of its
// own, apart from the parts, because its columns are others than an event's:
//
//	process     string   "rank0"
//	rank        int32    -1 for none
//	device      int32    CUDA ordinal
//	iteration   int64    number of the iteration, from 0; -1 for the whole process
//	iterations  int64    how many iterations from there on the row is of: 1, or more in long jobs; 0 for the whole process
//	phase       string   "" for all; one without a name has no rows
//	category    string   of allocations: weights, activations, …; "" for all
//	tag         string   of memprof.region(); "" for all
//	metric      string   as `memprof check --list` names it
//	unit        string   bytes, share, count or ns
//	value       double
//	seq         int64    the event after which the value was true; -1 for none
//
// All columns are required, zstd-compressed and dictionary-encoded or plain. Of the whole process there is every metric that
// has a value, and what [Allocations] and the constants beside it name. An iteration has its greatest
// requested, provided and reserved bytes, and what was live at its end and at its moment of most requested bytes by
// category. Where the table would exceed [MostBytes], neighbouring iterations become one, until it does not: greatest values stay
// greatest, counts and durations are added.
//
// The file metadata has memprof.summary_version, and of the process what run.json and its parts say: run_id, process, pid, rank,
// local_rank, world_size, local_world_size, command, frameworks, host, events, dropped, state, state_reason, gpu, driver and card, all
// with memprof. before.
package summary
