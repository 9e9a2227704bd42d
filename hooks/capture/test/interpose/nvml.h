// nvml.h - what the NVML of the tests (nvml.c) says: once before the context is made, and
// from the second asking on afterwards.
#ifndef MEMPROF_TEST_NVML_H
#define MEMPROF_TEST_NVML_H

// nvmlProcessInfo_t
struct nvml_entry {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

struct nvml_scene {
  unsigned long long used[2];          // of the device, by all
  const struct nvml_entry *listed[2];  // the processes on it; NULL: none
  unsigned count[2];
  int error;   // that the list is answered with; 0: none
  unsigned long long (*live)(void);  // if set, all that is listed is this process, with that
  _Bool wide;  // the entries are of 32 bytes, as those of drivers 535.43 to 535.86
};

void nvml_play(const struct nvml_scene *scene);  // keeps it
int nvml_users(void);                            // that have it initialised
int nvml_asked(void);                            // how many readings it was asked for

#endif
