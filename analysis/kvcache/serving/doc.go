// Package serving simulates servers of language models step by step: which requests run, wait and are preempted, and
// what each slot of the KV cache is used for. [Simulate] is one server. Its comment
// has the parts of a step and their order.
//
// # Data
//
// Requests come from a [kvcache.Source]. The store of the policy (package stores) places
// them. After each step the shares of the store are checked, weighed and kept (count.go), and
// what finished requests got is summed up (latency.go). Under a [kvcache.Timing] a step lasts as long as what it
// computes (work.go, timing.go). The result is a [kvcache.Result].
//
// Memory of the host is bounded by running and preempted requests, never by those that are still to come.
package serving
