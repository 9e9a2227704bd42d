// Package kvcache simulates the memory of keys and values in a language model's server, under
// contiguous and paged allocation, and says what each slot was used for at every step.
//
// It knows nothing of traces or reports. The package comment is completed by the files of each
// policy: contiguous.go, paged.go, vmm.go; schedule.go drives them.
//
// # The identity
//
// A slot holds the keys and values of one token. At every step, checked,
//
//	token + reserve + internal + external + cached + null = capacity
//
// Under the contiguous policies a request with c tokens so far, F in the end, R reserved and B
// given by the allocator counts c as token, F-c as reserve, R-F as internal, B-R as rounding;
// what no request has is stranded if a request waits that no free piece serves, else idle. Under
// paging a block with f slots filled, of which F will be filled while it is in use, counts f,
// F-f and the rest as internal; blocks that nobody uses are cached or free. Shared blocks count
// once.
package kvcache
