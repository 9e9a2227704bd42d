// Package spool reads what the capture hook writes while a job runs, and makes and removes the place for it.
//
// # Files
//
// The spool of a run is the directory "spool" in the run's, or a link there to a directory on a faster disk, which names
// its run in turn ([Make]). Hooks find it by $MEMPROF_SPOOL. After the job it is renamed to "spool-finished", so that no
// further process finds it.
//
// hooks/capture/spool/record.h describes it. In short, each process has a directory
//
//	p4711.88123456789/
//	  process      one page: identity, slots claimed, state
//	  000000.seg   65,536 records of 64 bytes
//	  problems     text, then zeros
//	  strings      written by the Collector: strings of deleted segments
//
// Its process file is locked while it is alive. The lock belongs to the open file, which a mapping
// keeps open, so that a job that closes its descriptors keeps the lock ([Process.Alive]).
//
// A record is valid once its commit word is stored. A slot that a dead process claimed and did not
// fill becomes a lost event, so that no loss is silent. Readers use pread and never map the files: a
// file that is truncated while it is read must not raise SIGBUS.
//
// # Reading
//
// [Spool.New] gives the processes as they appear, and [Process.Read] their events, once each. A reader that joins later skips what is
// converted ([Process.SkipTo]) and may be overtaken by the collector, which deletes segments. Damage is never an end of
// the others: a process that cannot be read is an error of its own, and what could not be opened for want of file descriptors
// is tried again.
package spool
