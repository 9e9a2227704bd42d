// share.c - shares a block, or all memory of a tag, with other processes.
//
// A block lies in one or more physical handles. Its owner, the process that allocated it, sends file
// descriptors of the handles over a Unix socket. A peer, a process that got the block's name, maps them
// in the same order and finds the block at its offset. An arena is shared in the same way, with all its
// handles. The physical memory exists until both have unmapped it. The socket lies in a folder
// of the user, /tmp/memprof-<uid>, that nobody else can enter; where there can be no such folder it is not in the file
// system (its name begins with a zero byte). Each side refuses processes of other users in any case.
//
//   name     memprof-block|memprof-arena <socket> <address>
//   request  struct request
//   answer   struct answer, then for each handle a struct piece with a descriptor attached
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "arena/share.h"

#include "arena/arena.h"
#include "base/hook.h"
#include "base/own_file.h"
#include "base/problem.h"
#include "base/thread.h"
#include "device/captures.h"
#include "memprof.h"

enum { POSIX_FD = 1, READ_AND_WRITE = 3, ON_DEVICE = 1, SOCKET_NAME = 64, TRIES = 200 };

// Seconds that each side waits for the other. A peer sends its request at once; the owner may have to
// finish a pause before it answers.
enum { OWNER_WAITS = 2, PEER_WAITS = 60 };

struct request {
  uint64_t addr;
  uint64_t whole;  // 1: all of the arena that has the address
};

struct answer {
  uint64_t handles;  // 0: there is no such block, or it cannot be shared
  uint64_t base;     // where the first handle is mapped
  uint64_t offset;   // of the block from there
  uint64_t span;     // bytes from there to the end of the last handle
};

struct piece {
  uint64_t place, bytes;  // from the base
};

static bool read_all(const struct own_file *socket, void *to, size_t bytes) {
  for (size_t got = 0; got < bytes;) {
    if (!own_file_is_there(socket)) return false;
    const ssize_t n = recv(socket->number, (char *)to + got, bytes - got, 0);
    if (n == 0 || (n < 0 && errno != EINTR)) return false;
    if (n > 0) got += (size_t)n;
  }
  return true;
}

static bool write_all(const struct own_file *socket, const void *from, size_t bytes) {
  for (size_t sent = 0; sent < bytes;) {
    if (!own_file_is_there(socket)) return false;
    const ssize_t n = send(socket->number, (const char *)from + sent, bytes - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) sent += (size_t)n;
  }
  return true;
}

union descriptor {
  char bytes[CMSG_SPACE(sizeof(int))];
  struct cmsghdr align;
};

static bool send_descriptor(const struct own_file *socket, struct piece piece, int descriptor) {
  union descriptor control = {{0}};
  struct iovec data = {&piece, sizeof piece};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptor);
  memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return own_file_is_there(socket) && sendmsg(socket->number, &message, MSG_NOSIGNAL) == sizeof piece;
}

static int receive_descriptor(const struct own_file *socket, struct piece *piece) {
  union descriptor control = {{0}};
  struct iovec data = {piece, sizeof *piece};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  if (!own_file_is_there(socket) || recvmsg(socket->number, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof *piece) return -1;
  const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  int descriptor = -1;
  if (header != NULL && header->cmsg_type == SCM_RIGHTS) memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

// Bounds each wait for the other side, which may have stopped.
static void limit_waiting(int number, time_t seconds) {
  const struct timeval limit = {.tv_sec = seconds};
  setsockopt(number, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(number, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// Whether the other side runs as this user. Both sides ask: any user can list the names of sockets outside the file system,
// and bind one whose owner has ended. Root serves and opens only what is root's, for it would map what another user chose.
static bool same_user(const struct own_file *socket) {
  struct ucred other;
  socklen_t length = sizeof other;
  if (!own_file_is_there(socket) || getsockopt(socket->number, SOL_SOCKET, SO_PEERCRED, &other, &length) != 0) return false;
  if (other.uid == geteuid()) return true;
  static atomic_flag reported = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&reported)) problem("a process of user %u was refused: tensors are shared only between processes of one user", (unsigned)other.uid);
  errno = EPERM;
  return false;
}

// The owner.

// The mappings [*first, *first + out->handles) of a block, or of all its arena.
static bool find_handles(struct arena *arena, struct request request, struct answer *out, size_t *first) {
  struct bfc_block block = {0};
  const struct vmm *vmm = &arena->memory.vmm;
  memset(out, 0, sizeof *out);
  if (arena->bfc == NULL) return false;  // it has ended since it was found
  if (arena->gpu->vmm.properties.requested_handle_types != POSIX_FD || driver_get()->export_handle == NULL) return false;
  if (request.whole == 0 && (!bfc_find(arena->bfc, request.addr, &block) || !arena_live(arena, &block))) return false;
  *first = request.whole != 0 ? 0 : vmm_find(vmm, request.addr);
  const uint64_t end = request.whole != 0 ? UINT64_MAX : request.addr + block.size;
  for (size_t i = *first; i < vmm->count && vmm->mappings[i].addr < end; i++) {
    if (out->handles++ == 0) out->base = vmm->mappings[i].addr;
    out->span = vmm->mappings[i].addr + vmm->mappings[i].bytes - out->base;
  }
  out->offset = request.whole != 0 ? 0 : request.addr - out->base;
  return out->handles > 0;
}

// Answers a request. The lock is not held while a slow peer reads. A shared block is live, so its handles
// do not change meanwhile. If they do nevertheless, the peer gets fewer handles than the answer said, and
// fails.
static void serve(const struct own_file *socket, struct request request) {
  struct arena *arena = arena_of(request.addr);
  struct answer answer = {0};
  size_t first = 0;
  if (arena != NULL) {
    lock_take(&arena->gpu->lock);
    find_handles(arena, request, &answer, &first);
    lock_give(&arena->gpu->lock);
  }
  if (!write_all(socket, &answer, sizeof answer)) return;
  for (uint64_t i = 0; i < answer.handles; i++) {
    int descriptor = -1;
    struct answer again;
    lock_take(&arena->gpu->lock);
    const bool there = find_handles(arena, request, &again, &first) && again.handles == answer.handles && again.base == answer.base;
    const struct vmm_mapping mapping = there ? arena->memory.vmm.mappings[first + i] : (struct vmm_mapping){0};
    const bool ok = there && driver_get()->export_handle(&descriptor, mapping.handle, POSIX_FD, 0) == DRIVER_OK;
    lock_give(&arena->gpu->lock);
    const bool sent = ok && send_descriptor(socket, (struct piece){mapping.addr - answer.base, mapping.bytes}, descriptor);
    if (ok) close(descriptor);
    if (!sent) return;
  }
}

static char own_name[SOCKET_NAME];  // empty: there is no listener
static struct own_file listener = {.number = -1};

static socklen_t address_of(const char *name, struct sockaddr_un *out) {
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  const size_t at = name[0] == '/' ? 0 : 1;
  snprintf(out->sun_path + at, sizeof out->sun_path - at, "%s", name);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static bool connect_to(const char *name, struct own_file *peer) {
  struct sockaddr_un address;
  const socklen_t length = address_of(name, &address);
  const int number = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  limit_waiting(number, PEER_WAITS);
  const bool connected = connect(number, (struct sockaddr *)&address, length) == 0;
  const int error = errno;
  const bool taken = own_file_take(peer, number);
  errno = error;
  return connected && taken;
}

static bool open_listener(const char *name) {
  struct sockaddr_un address;
  const socklen_t length = address_of(name, &address);
  if (!own_file_take(&listener, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))) return false;
  if (name[0] == '/') unlink(name);
  if (bind(listener.number, (struct sockaddr *)&address, length) == 0 && listen(listener.number, 64) == 0) return true;
  const int error = errno;
  own_file_close(&listener);
  errno = error;
  return false;
}

// The job has closed the listener: opens it again under the same name, which peers may have.
static bool open_again(void) {
  static bool reported;
  if (!reported) problem("the job closed the socket by which memprof shares tensors; it is opened again");
  reported = true;
  if (open_listener(own_name)) return true;
  problem("tensors cannot be shared with other processes any more: %s", strerror(errno));
  return false;
}

static void *listen_for_peers(void *nothing) {
  (void)nothing;
  while (own_file_is_there(&listener) || open_again()) {
    struct own_file peer;
    struct request request;
    if (!own_file_take(&peer, accept4(listener.number, NULL, NULL, SOCK_CLOEXEC))) {
      if (errno == EMFILE || errno == ENFILE) usleep(10000);  // until the job has closed some
      if (errno == EINTR || errno == ECONNABORTED || errno == EMFILE || errno == ENFILE || errno == EBADF) continue;
      if (!own_file_is_there(&listener)) continue;  // it was the job's file that could not accept
      return NULL;
    }
    if (!own_file_is_there(&listener)) open_again();  // at once, so that other peers need not wait until this one is served
    limit_waiting(peer.number, OWNER_WAITS);
    if (same_user(&peer) && read_all(&peer, &request, sizeof request)) serve(&peer, request);
    own_file_close(&peer);
  }
  return NULL;
}

// Removes the sockets of processes that were killed. A process of another container may have a number that nobody has here:
// its socket answers.
static void remove_dead(const char *folder) {
  DIR *entries = opendir(folder);
  if (entries == NULL) return;
  for (const struct dirent *each; (each = readdir(entries)) != NULL;) {
    int pid;
    char name[SOCKET_NAME];
    if (sscanf(each->d_name, "%d-", &pid) != 1 || kill(pid, 0) == 0 || errno != ESRCH) continue;
    if (snprintf(name, sizeof name, "%s/%s", folder, each->d_name) >= (int)sizeof name) continue;
    struct own_file peer = NO_FILE;
    if (!connect_to(name, &peer) && errno == ECONNREFUSED) unlink(name);
    own_file_close(&peer);
  }
  closedir(entries);
}

// The user's folder of sockets. Another user may have made one of its name, or a link.
static bool find_folder(char *folder, size_t size) {
  struct stat stat;
  snprintf(folder, size, "/tmp/memprof-%u", (unsigned)geteuid());
  if (mkdir(folder, 0700) != 0 && errno != EEXIST) return false;
  if (lstat(folder, &stat) != 0 || !S_ISDIR(stat.st_mode) || stat.st_uid != geteuid() || (stat.st_mode & 077) != 0) return false;
  remove_dead(folder);
  return true;
}

static void start_listener(void) {
  uint64_t secret = 0;
  char folder[32], name[SOCKET_NAME];
  if (getrandom(&secret, sizeof secret, 0) != sizeof secret) return;
  const char *before_pid = find_folder(folder, sizeof folder - 1) ? strcat(folder, "/") : "memprof-";
  snprintf(name, sizeof name, "%s%d-%016llx", before_pid, (int)getpid(), (unsigned long long)secret);
  memcpy(own_name, name, sizeof own_name);
  const int error = open_listener(name) ? thread_start(listen_for_peers, 0) : errno;
  if (error == 0) return;
  problem("tensors cannot be shared with other processes: %s", strerror(error));
  own_file_close(&listener);
  own_name[0] = '\0';
}

static void forget(void) { own_file_close(&listener); }

static void remove_own(void) {
  if (own_name[0] == '/') unlink(own_name);
}

static bool name_it(const char *kind, uint64_t addr, char *text, size_t size) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start_listener);
  if (own_name[0] == '\0') return false;
  return snprintf(text, size, "%s %s %llx", kind, own_name, (unsigned long long)addr) < (int)size;
}

int memprof_share(void *ptr, char *text, size_t size) {
  struct bfc_block block;
  return hook_on() && arena_block((uintptr_t)ptr, &block) != NULL && block.addr == (uintptr_t)ptr && name_it("memprof-block", (uintptr_t)ptr, text, size);
}

enum { MOST_ARENAS = 256 };

int memprof_share_tag(const char *tag, int device, void *self, void (*each)(void *self, const char *name, uint64_t base, uint64_t span)) {
  struct gpu *gpu = gpu_lock(device);
  struct answer found[MOST_ARENAS];
  int count = 0;
  if (gpu == NULL) return 0;
  for (struct arena *arena = gpu->arenas; arena != NULL && count < MOST_ARENAS; arena = arena->next) {
    size_t first;
    if (arena->tag == NULL || strcmp(arena->tag->name, tag) != 0) continue;
    count += find_handles(arena, (struct request){0, 1}, &found[count], &first);
  }
  lock_give(&gpu->lock);
  for (int i = 0; i < count; i++) {
    char name[128];
    if (!name_it("memprof-arena", found[i].base, name, sizeof name)) return 0;
    each(self, name, found[i].base, found[i].span);
  }
  return count;
}

// The peer.

struct opened {
  uint64_t base, total;
  int device;
  uint64_t fence;  // behind all that may use it, once it is closed
  struct opened *next;
};
static struct opened *all_opened;          // under `lock`
static struct opened *_Atomic all_closed;  // still mapped
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Sends the request and reads the answer. Tries again if the connection is refused: the owner's job may
// have closed the listener, which is opened again shortly after.
static bool ask(const char *name, const struct request *request, struct own_file *owner, struct answer *answer) {
  for (int i = 0; i < TRIES; i++) {
    errno = 0;
    if (connect_to(name, owner) && same_user(owner) && write_all(owner, request, sizeof *request) && read_all(owner, answer, sizeof *answer)) return true;
    const bool not_accepted = errno == ECONNREFUSED || errno == ECONNRESET;
    own_file_close(owner);
    if (!not_accepted) return false;
    usleep(5000);
  }
  return false;
}

// Receives the next handle and maps it at its place. Returns its bytes, 0 on failure.
static uint64_t map_next(const struct own_file *socket, uint64_t base, uint64_t span, int device) {
  const struct driver *driver = driver_get();
  struct piece piece = {0};
  driver_handle handle;
  const int descriptor = receive_descriptor(socket, &piece);
  if (descriptor < 0) return 0;
  const bool fits = piece.place <= span && piece.bytes <= span - piece.place;
  const bool imported = fits && driver->import_handle(&handle, (void *)(intptr_t)descriptor, POSIX_FD) == DRIVER_OK;
  close(descriptor);
  if (!imported) return 0;
  const bool mapped = driver->map(base + piece.place, piece.bytes, 0, handle, 0) == DRIVER_OK;
  driver->release(handle);  // the mapping keeps the memory
  const struct driver_access access = {{ON_DEVICE, device}, READ_AND_WRITE};
  if (mapped && driver->set_access(base + piece.place, piece.bytes, &access, 1) == DRIVER_OK) return piece.bytes;
  if (mapped) driver->unmap(base + piece.place, piece.bytes);
  return 0;
}

static bool map_all(const struct own_file *socket, const struct answer *answer, int device, uint64_t *base) {
  const struct driver *driver = driver_get();
  if (driver->reserve(base, answer->span, 0, 0, 0) != DRIVER_OK) return false;
  uint64_t mapped = 0;
  while (mapped < answer->handles && map_next(socket, *base, answer->span, device) > 0) mapped++;
  if (mapped == answer->handles) return true;
  if (mapped > 0) driver->unmap(*base, answer->span);
  driver->unreserve(*base, answer->span);
  return false;
}

static bool remember(uint64_t base, uint64_t total, int device) {
  struct opened *opened = malloc(sizeof *opened);
  if (opened == NULL) return false;
  pthread_mutex_lock(&lock);
  *opened = (struct opened){.base = base, .total = total, .device = device, .next = all_opened};
  all_opened = opened;
  pthread_mutex_unlock(&lock);
  return true;
}

void *memprof_open_shared(const char *text, int device) {
  char kind[6], name[SOCKET_NAME];
  unsigned long long addr;
  if (!hook_on() || sscanf(text, "memprof-%5[a-z] %63s %llx", kind, name, &addr) != 3) return NULL;
  hook_start();
  share_sweep();
  struct driver_scope scope;
  const struct driver *driver = driver_get();
  if (driver == NULL || driver->import_handle == NULL || !driver_enter(device, &scope)) return NULL;
  struct own_file owner = NO_FILE;
  const struct request request = {addr, strcmp(kind, "arena") == 0};
  struct answer answer = {0};
  uint64_t base = 0;
  const bool ok = ask(name, &request, &owner, &answer) && answer.handles > 0 && map_all(&owner, &answer, device, &base) && remember(base, answer.span, device);
  own_file_close(&owner);
  driver_leave(&scope);
  return ok ? (void *)(uintptr_t)(base + answer.offset) : NULL;
}

static void unmap_opened(const struct opened *opened) {
  const struct driver *driver = driver_get();
  if (driver->unmap(opened->base, opened->total) == DRIVER_OK) {
    driver->unreserve(opened->base, opened->total);
  } else {
    problem("%.2f GiB of another process's memory could not be unmapped, and stay on GPU %d", (double)opened->total / (1 << 30), opened->device);
  }
}

// Whether all work is over that was queued before it was closed.
static bool is_over(struct opened *opened) {
  struct gpu *gpu = gpu_get(opened->device);
  if (gpu == NULL) return false;
  const bool taken = gpu_take(gpu);
  if (opened->fence == 0) opened->fence = fence_force(gpu);
  const bool over = opened->fence != 0 && fence_over(gpu, opened->fence);
  gpu_give(gpu, taken);
  return over;
}

static void note_closed(struct opened *opened) {
  opened->next = atomic_load(&all_closed);
  while (!atomic_compare_exchange_weak(&all_closed, &opened->next, opened)) continue;
}

void share_sweep(void) {
  if (atomic_load_explicit(&all_closed, memory_order_relaxed) == NULL || !captures_hold()) return;
  struct opened *opened = atomic_exchange(&all_closed, NULL);
  while (opened != NULL) {
    struct opened *next = opened->next;
    if (is_over(opened)) {
      unmap_opened(opened);
      free(opened);
    } else {
      note_closed(opened);
    }
    opened = next;
  }
  captures_let();
}

void memprof_close_shared(void *ptr, int device) {
  const uint64_t addr = (uintptr_t)ptr;
  (void)device;
  if (!hook_on()) return;  // a forked child has neither the memory nor, maybe, the lock
  pthread_mutex_lock(&lock);
  struct opened **link = &all_opened;
  while (*link != NULL && addr - (*link)->base >= (*link)->total) link = &(*link)->next;
  struct opened *opened = *link;
  if (opened != NULL) *link = opened->next;
  pthread_mutex_unlock(&lock);
  if (opened == NULL) return;
  note_closed(opened);
  share_sweep();
}

HOOK_PART(.forget = forget, .end = remove_own);
