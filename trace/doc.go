// Package trace keeps what a profiled process did: the event model, the dataset users
// keep, the spool a capture hook writes, and the collector that makes one of the other.
// It knows nothing of allocators, analysis or the command line.
//
// # The way of an event
//
//	profiled process          memprof record               any later time
//	┌──────────────┐ spool ┌──────────────────┐ parts ┌────────────────────┐
//	│ capture hook │──────▶│ [Collector]      │──────▶│ [Open], [Reader]   │
//	└──────────────┘       │ SpoolProcess ▶   │       │ batches of columns │
//	  64-byte records      │ [Writer]         │       └────────────────────┘
//	  in mapped segments   └──────────────────┘
//
// # The dataset
//
// A run is a directory:
//
//	run/
//	  run.json              [Info]: command, host, devices, options, exit status
//	  rank0-0000.parquet    the first part of rank 0: at most 2,097,152 events
//	  rank0-0001.parquet    the next
//	  pid4711-0000.parquet  a process without a rank
//	  device-0000.parquet   no process: what the devices had in use, read beside the job
//	  spool/                only while recording, or after a collector died
//	  spool-finished/       the spool when the job has ended: its last events are converted,
//	                        run.json lists the processes, and it is removed
//	  *.ID.parquet.tmp      a part in the making, with the run's ID in its name;
//	  .ballast.ID           the room kept for it
//
// A part is a Parquet file with the columns
//
//	seq        int64   order of decisions in the process, from 0 without gaps
//	time_ns    int64   nanoseconds since the run's clock base, in steps of 256
//	kind       string  what happened ([Kind])
//	device     int32   CUDA ordinal, -1 for none
//	arena      int32   -1 for none
//	stream     int64   stream handle, 0 the default stream
//	addr       int64   bytes
//	requested  int64   bytes
//	provided   int64   bytes
//	context    string  who asked, or what the kind says
//	thread     int32   kernel thread id
//
// all required, compressed with zstd; seq and time_ns delta-packed, addr plain, the others
// through a dictionary for each row group, or plain where that is shorter. A reader takes no
// other encoding, and nothing by which it would have to trust a file: a footer has at most 16 MiB,
// a row group 4,194,304 rows, a page of contexts 256 MiB before compression, and the different
// contexts of a process 512 MiB together. What says more is [ErrDamaged].
//
// A part can be understood alone: the rows of any but the first part begin with the
// events before it that are still in force, verbatim, in order of seq: the arenas, the
// maps (cut to what is still mapped), the allocations not yet freed with their last label
// and the last use by each stream, the pending frees of those, open phases, external
// allocations, stacks, overheads, the last statistics. A [Reader] of several parts passes
// over them; one of a single later part gives them first, with their own seq, which is below
// the part's first.
//
// The file metadata of a part:
//
//	memprof.schema_version  1
//	memprof.run_id          Info.ID of its run
//	memprof.process         "rank0", "pid4711"
//	memprof.spool           name of the process's spool directory
//	memprof.pid, .rank, .local_rank, .world_size   decimal; -1 for none
//	memprof.local_world_size  ranks on this host, only where that is known
//	memprof.command, .frameworks                   text
//	memprof.part            number within the process, from 0
//	memprof.first_seq       seq of the first row behind the opening rows
//	memprof.events          rows behind the opening rows
//	memprof.opening_rows    rows that restate earlier events
//	memprof.next_slot       first spool slot behind its events, -1 without a spool
//	memprof.checksum_seed   state of the rolling checksum before first_seq
//	memprof.checksums       states at the end of each block that ends in the part
//	memprof.checksum_end    state after the last event
//	memprof.last            "true" in a process's last part, which also has:
//	memprof.state           "closed", "killed" or "stopped"
//	memprof.state_reason    text
//	memprof.lost            slots claimed and never filled
//	memprof.problems        lines of the hook's problems file
//	memprof.last_alive_ns   when the collector last saw the process alive, 0 for never
//
// Checksums are 16 hexadecimal digits each, separated by blanks; [Rolling] defines them.
// They cover the rows behind the opening rows, in blocks of 4,096 events counted from the
// start of the process, so that a cut, changed or swapped event is pinned to its block.
//
// A reader takes every schema version up to its own; a newer one is [ErrNewerSchema].
//
// # The spool
//
// hooks/capture/spool/record.h describes it. In short, each process has a directory
//
//	p4711.88123456789/
//	  process      one page: identity, slots claimed, state
//	  000000.seg   65,536 records of 64 bytes
//	  problems     text, then zeros
//	  strings      written by the Collector: strings of segments that are gone
//
// and its process file is locked while it lives. The lock belongs to the open file, which a
// mapping keeps open, so a job that closes its descriptors keeps it ([SpoolProcess.Alive]).
//
// A record counts once its commit word is stored. A slot that a dead process had claimed and
// not filled becomes a lost event, so that nothing is missing silently. Everything is read with
// pread, never mapped: a file that is cut while it is read must not be a fault.
//
// # What survives what
//
// SIGKILL of the profiled process loses what was not committed, at most one record for
// each thread inside an arena. SIGKILL of the collector loses nothing: a segment is
// deleted only when all its events are in complete parts, a part appears under its name
// only when it is complete, and [Recover] goes on from the part's next_slot. The directory of a
// process whose last part is there only remains to be removed, as does a spool-finished once
// run.json lists the processes: so a removal can be cut off anywhere and ended by the next
// recovery. On a full disk the collector gives up its ballast to complete the part at hand, whose segments
// then make room; if that is not enough, the events stay in the spool.
package trace
