// disk.c - see disk.h.
#define _GNU_SOURCE
#include "device/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/lock.h"
#include "base/problem.h"

enum { TMPFS = 0x01021994, RAMFS = 0x858458f6 };  // f_type of file systems in memory

static struct lock lock;
static char folder[PATH_MAX];  // "": not set
static bool warned;

// Files that exist, to be deleted at the end of the process.
struct listed {
  char *path;
  struct listed *next;
};
static struct listed *existing;

static __thread char message[PATH_MAX + 200];

const char *disk_message(void) { return message; }

static bool failed(const char *call, const char *path, int error) {
  snprintf(message, sizeof message, "%s of the backup file %s: %s", call, path, error == 0 ? "it is shorter than what was written" : strerror(error));
  return false;
}

void disk_set_folder(const char *path) {
  lock_take(&lock);
  snprintf(folder, sizeof folder, "%s", path == NULL ? "" : path);
  warned = false;
  lock_give(&lock);
}

static const char *folder_of_environment(void) {
  static const char *const names[] = {"TMS_DISK_BACKUP_DIR", "MEMPROF_BACKUP_DIR", "TMPDIR"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    if (value != NULL && value[0] != '\0') return value;
  }
  return "/tmp";
}

// Makes a folder and those that it lies in.
static void make_folder(const char *path) {
  char part[PATH_MAX];
  snprintf(part, sizeof part, "%s", path);
  for (char *c = part + 1; *c != '\0'; c++) {
    if (*c != '/') continue;
    *c = '\0';
    mkdir(part, 0777);
    *c = '/';
  }
  mkdir(part, 0700);
}

static void warn_of_memory(const char *path) {
  struct statfs system;
  if (warned || statfs(path, &system) != 0) return;
  warned = true;
  if ((unsigned)system.f_type == TMPFS || (unsigned)system.f_type == (unsigned)RAMFS) {
    problem("backup files go to %s, which is a file system in memory: they take host memory", path);
  }
}

// A list entry that was allocated before the file was made, so that no file is forgotten.
static void list(struct listed *entry, char *path) {
  entry->path = path;
  entry->next = existing;
  existing = entry;
}

static void delete(const char *path) {
  lock_take(&lock);
  struct listed **link = &existing;
  while (*link != NULL && (*link)->path != path) link = &(*link)->next;
  struct listed *entry = *link;
  if (entry != NULL) *link = entry->next;
  lock_give(&lock);
  unlink(path);
  free(entry);
}

// A new file, preallocated. NULL: it could not be made.
static char *make_file(uint64_t bytes) {
  char path[PATH_MAX + 64];
  struct listed *entry = malloc(sizeof *entry);
  lock_take(&lock);
  const char *in = folder[0] != '\0' ? folder : folder_of_environment();
  make_folder(in);
  warn_of_memory(in);
  snprintf(path, sizeof path, "%s/memprof-backup-%d-XXXXXX", in, (int)getpid());
  const int fd = entry == NULL ? -1 : mkostemp(path, O_CLOEXEC);
  char *name = fd < 0 ? NULL : strdup(path);
  if (name != NULL) list(entry, name);
  lock_give(&lock);
  if (fd < 0) failed("the creation", path, entry == NULL ? ENOMEM : errno);
  if (fd < 0) free(entry);
  if (fd < 0) return NULL;
  int error = name == NULL ? ENOMEM : posix_fallocate(fd, 0, (off_t)bytes);
  if (error == EOPNOTSUPP || error == EINVAL) error = ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
  close(fd);
  if (error == 0) return name;
  failed("the allocation", path, error);
  if (name == NULL) {
    unlink(path);
    free(entry);
  } else {
    delete(name);
    free(name);
  }
  return NULL;
}

bool disk_take(struct disk_room *room, const uint64_t *sizes, size_t count) {
  *room = (struct disk_room){.files = calloc(count == 0 ? 1 : count, sizeof *room->files), .open = -1};
  if (room->files == NULL) return failed("the list", "", ENOMEM);
  uint64_t from = 0;
  for (; room->count < count; room->count++) {
    char *path = make_file(sizes[room->count]);
    if (path == NULL) {
      disk_give(room);
      return false;
    }
    room->files[room->count] = (struct disk_file){.path = path, .from = from, .bytes = sizes[room->count]};
    from += sizes[room->count];
  }
  return true;
}

void disk_give(struct disk_room *room) {
  if (room->files != NULL && room->open >= 0) close(room->open);
  for (size_t i = 0; i < room->count; i++) {
    delete(room->files[i].path);
    free(room->files[i].path);
  }
  free(room->files);
  *room = (struct disk_room){.open = -1};
}

bool disk_close(struct disk_room *room) {
  if (room->open < 0) return true;
  const struct disk_file *file = &room->files[room->file];
  const bool ok = fdatasync(room->open) == 0 || errno == EINVAL || failed("the writing", file->path, errno);
  posix_fadvise(room->open, 0, 0, POSIX_FADV_DONTNEED);
  close(room->open);
  room->open = -1;
  return ok;
}

// Opens the file that has the byte at `place`. NULL: it cannot be opened.
static const struct disk_file *find(struct disk_room *room, uint64_t place) {
  size_t at = room->open < 0 ? 0 : room->file;
  if (place < room->files[at].from) at = 0;
  while (place >= room->files[at].from + room->files[at].bytes) at++;
  const struct disk_file *file = &room->files[at];
  if (room->open >= 0 && room->file == at) return file;
  if (!disk_close(room)) return NULL;
  room->file = at;
  room->open = open(file->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (room->open < 0) failed("the opening", file->path, errno);
  return room->open < 0 ? NULL : file;
}

bool disk_write(struct disk_room *room, uint64_t place, const void *data, uint64_t bytes) {
  const struct disk_file *file = find(room, place);
  for (uint64_t done = 0; file != NULL && done < bytes;) {
    const ssize_t wrote = pwrite(room->open, (const char *)data + done, bytes - done, (off_t)(place - file->from + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return failed("the writing", file->path, wrote == 0 ? ENOSPC : errno);
    done += (uint64_t)wrote;
  }
  return file != NULL;
}

bool disk_read(struct disk_room *room, uint64_t place, void *data, uint64_t bytes) {
  const struct disk_file *file = find(room, place);
  for (uint64_t done = 0; file != NULL && done < bytes;) {
    const ssize_t got = pread(room->open, (char *)data + done, bytes - done, (off_t)(place - file->from + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failed("the reading", file->path, got == 0 ? 0 : errno);
    done += (uint64_t)got;
  }
  return file != NULL;
}

static void delete_all(void) {
  for (const struct listed *entry = existing; entry != NULL; entry = entry->next) unlink(entry->path);
}

static void forget(void) {
  lock = (struct lock){0};
  existing = NULL;
}

HOOK_PART(.order = HOOK_REST, .forget = forget, .end = delete_all);
