// Package collect converts a spool to a dataset, while the job runs ([Collector]) or after its recorder was killed ([Recover]).
// Two kinds of readers take a recording that is not finished: [OpenLive] opens it with all events up to now, and [Follow]
// gives the events as they come. They write nothing, hold no lock, and so cannot disturb the recording.
//
// # The ring
//
// With [Options.Ring], the collector keeps the last events of a process in the spool and converts them at its end. What
// it drops it follows for its effect: the part that comes in place of the dropped events has opening rows and no events.
//
// # Crash safety
//
// SIGKILL of the profiled process loses the records that are not committed: at most one for each
// thread that is inside an arena. SIGKILL of the collector loses nothing: it deletes a segment only when
// all its events are in complete parts, gives a part its name only when it is complete, and [Recover]
// continues at the part's next_slot.
//
// When the last part of a process exists, its spool directory only has to be removed; likewise
// spool-finished, when run.json lists the processes. So a removal may be killed at any point, and the
// next recovery completes it. On a full disk the collector removes its ballast to complete the current
// part, and then deletes the part's segments; if that is not enough, the events stay in the
// spool.
package collect
