package collect

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/memprof/memprof/trace/dataset"
)

// snapshotTaken is Ending.Reason of a process that went on when a snapshot of its run was written.
const snapshotTaken = "a snapshot was written here, and the job went on"

// WriteSnapshot writes the events of a run that is being recorded, up to now, to the directory to, which exists and has no
// run. The result is a run that every reader takes. The recording in dir goes on undisturbed: WriteSnapshot writes
// nothing there and holds no lock. Errors are those of [OpenLive], and [trace.ErrDiskFull].
func WriteSnapshot(dir, to, why string) (*dataset.Run, error) {
	target, err := os.OpenRoot(to)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	const tries = 20
	for try := 1; ; try++ {
		run, err := writeSnapshot(dir, target, why)
		if err == nil || try == tries || !errors.Is(err, fs.ErrNotExist) {
			return run, err
		}
		// a ring has removed a part before it was copied
	}
}

func writeSnapshot(dir string, target *os.Root, why string) (_ *dataset.Run, err error) {
	run, err := openUntilNow(dir, snapshotTaken)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	var copied []string
	defer func() {
		if err != nil {
			for _, name := range copied {
				target.Remove(name)
			}
		}
	}()
	copyAll := func(parts []dataset.Part) error {
		for i := range parts {
			name, err := parts[i].CopyTo(target)
			if err != nil {
				return err
			}
			copied = append(copied, name)
		}
		return nil
	}
	info := run.Info
	info.Snapshot = &dataset.Snapshot{Time: time.Now(), Why: why}
	info.DurationNS = time.Since(info.Start).Nanoseconds()
	info.Processes = nil
	for _, p := range run.Processes {
		info.Processes = append(info.Processes, p.Name)
		if err := copyAll(p.Parts); err != nil {
			return nil, err
		}
	}
	if run.Readings != nil {
		if err := copyAll(run.Readings.Parts); err != nil {
			return nil, err
		}
	}
	// Last, as of a recording: without it the parts are those of a run whose writing was interrupted.
	return run, dataset.WriteInfo(target.Name(), &info)
}
