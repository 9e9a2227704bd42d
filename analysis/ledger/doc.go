// Package ledger keeps the memory of a process's arenas event by event.
//
// Each event of package trace changes segments, the terms of its arena and of its device. An event that
// contradicts the state is an error. The ledger knows no tracker.
package ledger
