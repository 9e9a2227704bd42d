// # Shares
//
// The shares of package kvcache follow from the marks of an engine, without a simulation.
//
// An [Account] is all caches of one description, a [Cache] one of them. The engine's marks reserve slots, append
// tokens, share, swap and free blocks; each method of Cache is one kind of mark. Means are over the time in which
// there is a sequence. A mark that contradicts the state is an error that names the sequence or the block, and
// changes nothing.
package kv
