// nccl.h - what the wrappers of NCCL's functions (nccl.c) tell communicators.c.
#ifndef MEMPROF_NCCL_H
#define MEMPROF_NCCL_H

#include <stdint.h>

// The same for all ranks of a communicator; a is 0 where it is not known.
struct nccl_key {
  uint64_t a, b;
};

// A call under way, on the stack of its wrapper.
struct nccl_work {
  uint32_t before, number;
};

// A communicator of `count` ranks (0: not known) is being made; the call has ended with this handle and result.
void nccl_make(struct nccl_work *work, struct nccl_key key, int count);
void nccl_made(struct nccl_work *work, struct nccl_key key, void *handle, int result);

// The call has made a further rank of it in this process.
void nccl_add(const struct nccl_work *work, void *handle);

// A call works for a communicator, until nccl_leave.
void nccl_use(struct nccl_work *work, const void *handle);
void nccl_leave(struct nccl_work *work);

// The communicator is about to be destroyed.
void nccl_forget(const void *handle);

// A group of calls begins; its end is under way, and is over.
void nccl_group_begin(void);
void nccl_group_end(struct nccl_work *work);
void nccl_group_ended(struct nccl_work *work);

#endif
