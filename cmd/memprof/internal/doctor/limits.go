package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/analysis/plain"
)

// What recording needs of a process's limits.
const (
	fewestFiles  = 256     // for the hook and the recorder, besides the job's own
	smallestFile = 8 << 20 // a segment of the spool has 4 MiB, a part of a trace up to 8 MiB
)

// checkLimits examines ulimit -n, -l and -f: hard limits, except for the size of files, where exceeding the soft
// limit ends a process.
func checkLimits() Finding {
	f := Finding{Check: "limits", Health: OK}
	var files, locked, size unix.Rlimit
	for resource, limit := range map[int]*unix.Rlimit{unix.RLIMIT_NOFILE: &files, unix.RLIMIT_MEMLOCK: &locked, unix.RLIMIT_FSIZE: &size} {
		if err := unix.Getrlimit(resource, limit); err != nil {
			f.Health, f.Detail = Warn, err.Error()
			return f
		}
	}
	f.Detail = fmt.Sprintf("%d open files, %s locked memory, files of %s", files.Max, limitText(locked.Cur), limitText(size.Cur))
	var remedies []string
	if files.Max < fewestFiles {
		remedies = append(remedies, "raise ulimit -n to 4096")
	}
	if size.Cur < smallestFile {
		remedies = append(remedies, fmt.Sprintf("raise ulimit -f: a recording has files of up to %s, and stops at the limit", plain.FormatSize(smallestFile)))
	}
	if locked.Cur < 64<<10 {
		remedies = append(remedies, "raise ulimit -l: NCCL over InfiniBand needs it, with or without memprof")
	}
	if len(remedies) > 0 {
		f.Health, f.Remedy = Warn, strings.Join(remedies, "; ")
	}
	return f
}

func limitText(limit uint64) string {
	if limit == unix.RLIM_INFINITY {
		return "any size"
	}
	return plain.FormatSize(int64(limit))
}

func checkMapCount() Finding {
	const file, usual = "/proc/sys/vm/max_map_count", 65530
	f := Finding{Check: "mappings", Health: OK}
	text, err := os.ReadFile(file)
	if err != nil {
		f.Health, f.Detail = Warn, err.Error()
		return f
	}
	count, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		f.Health, f.Detail = Warn, fmt.Sprintf("%s: %v", file, err)
		return f
	}
	f.Detail = fmt.Sprintf("at most %d (vm.max_map_count)", count)
	if count < usual {
		f.Health, f.Remedy = Warn, fmt.Sprintf("sysctl vm.max_map_count=%d, or a larger --handle", usual)
	}
	return f
}

func checkSpace(check, dir string, wanted uint64) Finding {
	f := Finding{Check: check, Health: OK}
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		f.Health, f.Detail = Warn, fmt.Sprintf("%s: %v", dir, err)
		return f
	}
	free := stat.Bavail * uint64(stat.Bsize)
	f.Detail = fmt.Sprintf("%s free in %s", plain.FormatSize(int64(free)), dir)
	if free < wanted {
		f.Health = Warn
		f.Remedy = fmt.Sprintf("less than %s: record to another file system with -o or --spool", plain.FormatSize(int64(wanted)))
	}
	return f
}

// recorderFiles is how many descriptors memprof and the hook need besides the job's.
const recorderFiles = 32

// TooTight returns an error if a limit leaves no room for recording. It opens no file.
func TooTight() error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Max < recorderFiles {
		return fmt.Errorf("only %d files may be open (raise ulimit -n to 4096)", limit.Max)
	}
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && limit.Cur < smallestFile {
		return fmt.Errorf("files may have at most %s (raise ulimit -f: a recording needs %s)", plain.FormatSize(int64(limit.Cur)), plain.FormatSize(smallestFile))
	}
	return nil
}
