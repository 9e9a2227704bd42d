// killer.c - runs a command and kills it as it enters its Nth system call.
//
//   killer OUT changing|every N COMMAND [ARGUMENT]...
//
// Counted are the calls of all threads of the command, not those of processes it starts: these run
// free, and go on after the kill, until whose end it waits. `changing` counts only calls that change files. The call at which
// the command is killed is not made. With N = 0, or beyond the last call, the command runs to its end.
// OUT gets "COUNT NUMBER\n": how many calls were counted and the number of the last. The exit code is
// 137 after the kill, else the command's; 125 is an error of the killer's own.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Of linux/ptrace.h, which does not go together with the C library's sys/ptrace.h.
#define GET_SYSCALL_INFO ((enum __ptrace_request)0x420e)
enum { SYSCALL_ENTRY = 1 };
struct syscall_info {
  uint8_t op, pad[3];
  uint32_t arch;
  uint64_t instruction_pointer, stack_pointer;
  uint64_t number, argument[6], more[2];
};

static void die(const char *what) {
  fprintf(stderr, "killer: %s: %s\n", what, strerror(errno));
  exit(125);
}

// Says whether a descriptor of the command is a file in a file system, not a pipe, socket or device.
static int is_file(pid_t pid, uint64_t fd) {
  char link[64], path[16];
  snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)pid, (int)fd);
  const ssize_t length = readlink(link, path, sizeof path);
  return length > 0 && path[0] == '/' && !(length > 5 && memcmp(path, "/dev/", 5) == 0);
}

static int changes_files(pid_t pid, uint64_t number, const uint64_t *argument) {
  switch (number) {
#ifdef SYS_open
    case SYS_open: return (argument[1] & (O_CREAT | O_TRUNC)) != 0;
    case SYS_creat:
    case SYS_rename:
    case SYS_mkdir:
    case SYS_rmdir:
    case SYS_unlink:
    case SYS_link:
    case SYS_symlink:
    case SYS_chmod: return 1;
#endif
    case SYS_openat: return (argument[2] & (O_CREAT | O_TRUNC)) != 0;
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64: return is_file(pid, argument[0]);
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
    case SYS_mkdirat:
    case SYS_unlinkat:
    case SYS_linkat:
    case SYS_symlinkat:
    case SYS_truncate:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_fchmod:
    case SYS_fchmodat:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_flock: return 1;
  }
  return 0;
}

static pid_t start(char **command) {
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) die("ptrace");
    raise(SIGSTOP);
    execvp(command[0], command);
    die(command[0]);
  }
  int status;
  if (waitpid(child, &status, __WALL) != child || !WIFSTOPPED(status)) die("waitpid");
  // Without TRACEFORK and TRACEVFORK the processes that the command starts are not traced.
  if (ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL) != 0) die("ptrace options");
  return child;
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: killer OUT changing|every N COMMAND [ARGUMENT]...\n");
    return 125;
  }
  const int every = strcmp(argv[2], "every") == 0;
  const long at = atol(argv[3]);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) die("prctl");  // what the command leaves behind becomes a child
  const pid_t child = start(argv + 4);
  long count = 0;
  unsigned long long last = 0;
  int running = 0, code = 125;
  if (ptrace(PTRACE_SYSCALL, child, 0, 0) != 0) die("ptrace");
  for (;;) {
    int status, signal = 0;
    const pid_t pid = waitpid(-1, &status, __WALL);
    if (pid < 0) break;  // all threads have ended, and all processes that they started
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (pid == child) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      continue;
    }
    const int stop = WSTOPSIG(status);
    if (stop == (SIGTRAP | 0x80)) {
      struct syscall_info info;
      if (running && ptrace(GET_SYSCALL_INFO, pid, sizeof info, &info) > 0 && info.op == SYSCALL_ENTRY &&
          (every || changes_files(child, info.number, info.argument))) {
        last = info.number;
        if (++count == at) kill(child, SIGKILL);
      }
    } else if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXEC << 8))) {
      running = 1;
    } else if (status >> 16 == 0 && !(stop == SIGSTOP && pid != child)) {
      signal = stop;  // not one of ptrace's own: the command's to see
    }
    ptrace(PTRACE_SYSCALL, pid, 0, signal);  // fails where a kill came between
  }
  FILE *out = fopen(argv[1], "w");
  if (!out || fprintf(out, "%ld %llu\n", count, last) < 0 || fclose(out) != 0) die(argv[1]);
  return code;
}
