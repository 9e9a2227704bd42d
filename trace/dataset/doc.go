// Package dataset reads and writes the recordings that users keep.
//
// # Files
//
// A run is a directory:
//
//	run/
//	  run.json              [Info]: command, host, devices, options, exit status
//	  rank0-0000.parquet    the first part of rank 0: at most 524,288 events
//	  rank0-0001.parquet    the next
//	  pid4711-0000.parquet  a process without a rank
//	  device-0000.parquet   readings: the devices' used memory while the job ran, no process
//	  spool/                only while recording, or after a collector was killed, see package spool
//	  spool-finished/       the spool after the job
//	  *.ID.parquet.tmp      an incomplete part; ID is the run's
//	  .ballast.ID           disk space reserved for it
//
// A part is a Parquet file with the columns
//
//	seq        int64   order of decisions in the process, from 0 without gaps
//	time_ns    int64   nanoseconds since the run's clock base, in steps of 256
//	kind       string  what happened ([trace.Kind])
//	device     int32   CUDA ordinal, -1 for none
//	arena      int32   -1 for none
//	stream     int64   stream handle, 0 the default stream
//	addr       int64   bytes; these three columns depend on the kind ([trace.Kinds])
//	requested  int64   bytes
//	provided   int64   bytes
//	context    string  depends on the kind ([trace.Context])
//	thread     int32   kernel thread id
//
// All columns are required and compressed with zstd; seq and time_ns are delta-packed, addr is plain, the
// others have a dictionary for each row group, or are plain where that is shorter. A reader takes no
// other encoding. It does not trust sizes in the file: a footer may have 16 MiB, a row group 4,194,304
// rows, a page of contexts 256 MiB before compression, and the different contexts of a process
// 512 MiB together. A file that exceeds these is [trace.ErrDamaged].
//
// Each part can be read alone. A part but the first begins with opening rows: earlier events that still
// hold, unchanged, in order of seq. These are the arenas, the maps (cut to what is still mapped), the live and
// pending allocations with their last label, the last use by each stream and their frees, open
// phases, allocations of other libraries, stacks, overheads, the last statistics, KV caches. A free of a range with
// the seq of the map before it says that the range was handed out since; what a ring begins with has none. A [Reader] of
// several parts skips opening rows. A Reader of a single later part returns them first, with
// their own seq, which is below the part's first.
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
//	memprof.first_seq       seq of the first row after the opening rows
//	memprof.first_time_ns   time of that row, if there is one
//	memprof.iterations      iteration events before that row
//	memprof.events          rows after the opening rows
//	memprof.opening_rows    number of opening rows
//	memprof.next_slot       spool slot after that of its last event, -1 without a spool
//	memprof.checksum_seed   state of the rolling checksum before first_seq
//	memprof.checksums       states at the end of each block that ends in the part
//	memprof.checksum_end    state after the last event
//	memprof.dropped         only of a part with which a process begins: events before it that a ring dropped
//	memprof.last            "true" in a process's last part, which also has
//	memprof.state           "closed", "killed" or "stopped"
//	memprof.state_reason    text
//	memprof.lost            slots claimed and never filled
//	memprof.problems        lines of the hook's problems file
//	memprof.last_alive_ns   when the collector last saw the process alive, 0 for never
//
// Checksums are 16 hexadecimal digits each, separated by blanks; [Rolling] defines them.
// They cover the rows after the opening rows, in blocks of 4,096 events counted from the start of the
// process, so that a removed, changed or swapped event is located to its block.
//
// A reader reads every schema version up to its own; a newer one is [trace.ErrNewerSchema].
//
// # Doors
//
// [Open] opens a recording, and [Reader] reads the events of a process, batch by batch. [Writer] writes a process, and
// [ResumeWriter] goes on where a killed one ended. A part gets its name when it is complete, so that a recording has whole
// parts only, whenever its writer is killed. [Occupy] says what a directory holds under the names of a new recording's files.
package dataset
