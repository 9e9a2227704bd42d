// Package trace has the event model: what happens to the memory of a process ([Event], [Kind], [Context]), and what follows
// from it ([Live]). It knows nothing of files, allocators, analysis or the command line. Its subpackages are the way of
// an event:
//
//	profiled process          memprof record               any later time
//	┌──────────────┐ spool ┌──────────────────┐ parts ┌────────────────────┐
//	│ capture hook │──────▶│ collect          │──────▶│ dataset            │
//	└──────────────┘       │ spool ▶ dataset  │       │ batches of columns │
//	  64-byte records      └──────────────────┘       └────────────────────┘
//	  in mapped segments
//
// Package spool reads what the hook writes, package dataset reads and writes what users keep, and package collect
// converts the one to the other. Imports go one way: trace, spool, dataset, collect. A dataset asks its spool only whether it
// was converted.
//
// The errors of all of them are here: each is one of the Err values in a *[PathError], which says what the user can do.
package trace
