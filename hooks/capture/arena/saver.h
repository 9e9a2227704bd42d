// saver.h - the settings of a thread in the interface of the library torch_memory_saver (api_saver.c).
//
// That library has its settings in C, for each thread, and reads their first values from the environment:
// TMS_INIT_ENABLE, TMS_INIT_ENABLE_CPU_BACKUP, TMS_INIT_CPU_BACKUP_BACKEND and TMS_INIT_ENABLE_DISK_BACKUP. A thread
// in an *interesting region* allocates under the current tag; with TMS_INIT_ENABLE=1 every thread is in one from the
// start. Where that library is loaded itself, these settings are its own and not looked at here.
#ifndef MEMPROF_SAVER_H
#define MEMPROF_SAVER_H

#include <stdbool.h>

struct tag;

struct saver_settings {
  bool interesting, cpu_backup, disk_backup;
  bool mmap;        // the backend of CPU backups: "mmap", or else "pinned"
  bool discard;     // what is allocated without a backup is dead between replays of CUDA graphs
  char tag[256];
};

// The settings of the calling thread.
const struct saver_settings *saver_get(void);
// Changes them from now on; `depth` is how many regions of memprof_region_begin the thread is in. Deeper ones count
// before the settings.
void saver_set(const struct saver_settings *settings, int depth);

// Whether the settings decide the tag of the thread's requests at that depth of regions. *tag NULL: none.
bool saver_decides(int depth, struct tag **tag);
// The tag of threads that have changed no setting, or NULL.
struct tag *saver_initial(void);

// Whether cudaMalloc of the calling thread is served under its tag (memprof_saver_serves).
bool saver_serves(void);

// Whether an environment variable says yes. What is neither yes nor no is a line of the problems file, and counts as no.
bool saver_switch(const char *name);

// A function of the library torch_memory_saver itself; NULL: it is not loaded.
void *saver_foreign(const char *name);

#endif
