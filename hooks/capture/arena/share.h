// share.h - memory of other processes that this one has opened (memprof_open_shared).
#ifndef MEMPROF_SHARE_H
#define MEMPROF_SHARE_H

// Unmaps what has been closed. During a capture nothing may wait for the device, so that a close then
// leaves its memory mapped until the next call after the capture. The caller holds no device's lock.
void share_sweep(void);

#endif
