package trace

import "syscall"

// NonBlock is the flag of opening a file that makes it return at once where the file is a pipe that nobody writes.
const NonBlock = syscall.O_NONBLOCK
