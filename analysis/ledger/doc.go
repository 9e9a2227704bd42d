// Package ledger keeps the memory of a process's arenas event by event.
//
// It knows the events of package trace and nothing of what trackers make of the memory.
package ledger
