// Package oomtext reads a log, finds the out-of-memory error in it, and says what the error's own figures say: whose bytes fill
// the device, and which of eight causes explains the refusal. It needs no recording and no GPU.
//
// # What is found
//
// Errors of PyTorch 1.0 to 2.14 (CUDA, and those of other vendors), start-up refusals of vLLM and SGLang, RESOURCE_EXHAUSTED of
// JAX and XLA, TensorFlow's ResourceExhaustedError and the dump of its BFC allocator, NCCL's and CUDA's "out of memory", host
// memory, and a few other programs. A log may have ranks' prefixes, timestamps, frames, colours and wrapped lines: lines lose their
// prefixes and are searched with all white space removed, so no line end matters, not even one within a word.
//
// # Which error
//
// A log often has several. The errors of a higher class are preferred, by how much their text says: the bare fact of a refusal; its
// size; the figures of the device; a refusal of vLLM or SGLang that wraps another. Within a class the first one is taken, since what
// follows it, in other ranks and in handlers, usually follows from it. An allocation whose failure the program says it survives is
// no error.
//
// # Verdicts
//
// Let r be the request, free what the device has free, missing = r - free. Tested in this order, where the text has the figures:
//
//   - not_gpu: the memory is the host's, or another vendor's device refused.
//   - bug_size: no device has that much: PyTorch's "more than 1EB", 1 TiB and more, 10 times the device, or, on a device of unknown
//     size, more than the largest one sold.
//   - limit: a fraction or utilization setting refuses what the device has room for.
//   - unknown: more is free than was requested, so the figures do not explain the refusal; or there are no figures.
//   - other_process: other processes hold what is missing, and a tenth of the device or what PyTorch's own cache could not have
//     served; or most likely do, since 15 % of the device and what is missing are neither free nor this process's.
//   - fragmentation: the bytes that are reserved and not allocated would have held the request.
//   - outside_framework: this process's memory outside the framework holds what is missing, beyond what a CUDA context with its
//     libraries takes.
//   - capacity: otherwise.
//
// A request that takes nearly all that is free (1 % of the device, at least 64 MiB) counts as missing whole: the driver keeps a
// little for itself.
//
// # Starts
//
// [Startup] reads what vLLM and SGLang log of memory when they start, where nothing fails.
//
// # Memory
//
// The text is read once, in a window of 64 KiB, whatever its length and that of its lines.
package oomtext
