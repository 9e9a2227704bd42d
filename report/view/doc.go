// Package view serves the page of a recording on the machine's own address, and answers it from the recording's parts:
// exactly, for any event, whatever the recording's length.
//
// The page comes at once, with a coarse picture of what the parts' opening rows say. In the background the recording is
// read for the page's curves. A question about an event is answered from the part that has the event ([recording.Events]): what
// it restates and its events give what a pass over the whole recording would.
//
// Whoever can reach the address must not be able to read the recording, so a request names a random token, and the
// address by its own name; no request opens a file by a name of its own.
package view
