package dataset

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/spool"
)

// Occupied lists what a directory holds under the names that the files of a new run will have.
type Occupied struct {
	Ours    []string // files whose content shows that memprof wrote them, and the spool
	Foreign []string // all others

	temporary []string // temporary files of the runs in Ours
	dir       string
}

// Occupy lists what is in a directory where a run is to be recorded. Links are foreign, except the link to the run's
// spool elsewhere.
func Occupy(dir string) (*Occupied, error) {
	run, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	entries, err := fs.ReadDir(run.FS(), ".")
	if err != nil {
		return nil, err
	}
	o := &Occupied{dir: dir}
	ids := map[string]bool{}
	for _, e := range entries {
		ours := false
		switch name := e.Name(); {
		case spool.IsName(name):
			ours = spool.IsOwn(run, name)
		case name == InfoName, strings.HasSuffix(name, partSuffix):
			var id string
			if id, ours = runOf(dir, e); ours {
				ids[id] = true
			}
		case name == SummaryName && !e.IsDir(): // a link: what is written into it would go elsewhere
		default:
			continue
		}
		switch {
		case !ours:
			o.Foreign = append(o.Foreign, e.Name())
		case e.Name() == InfoName: // first, since users know it best
			o.Ours = slices.Insert(o.Ours, 0, e.Name())
		default:
			o.Ours = append(o.Ours, e.Name())
		}
	}
	for _, e := range entries {
		for id := range ids {
			if temporaryOf(id, e.Name()) {
				o.temporary = append(o.temporary, e.Name())
			}
		}
	}
	return o, nil
}

// runOf reads the ID of the run from a part or a run.json; ours is false if it is neither. The ID is "" if a newer
// memprof wrote the file.
func runOf(dir string, e fs.DirEntry) (id string, ours bool) {
	if !e.Type().IsRegular() {
		return "", false
	}
	var err error
	if e.Name() == InfoName {
		var info *Info
		if info, err = ReadInfo(dir); err == nil {
			return info.ID, info.ID != "" && info.SchemaVersion > 0
		}
	} else {
		var part *Part
		if part, err = readPart(filepath.Join(dir, e.Name())); err == nil {
			return part.Process.RunID, true
		}
	}
	return "", errors.Is(err, trace.ErrNewerSchema)
}

// Remove removes the files in Ours. Call it only if Foreign is empty and no process works on the run. It removes
// run.json last, so that another call can identify what a killed one left.
func (o *Occupied) Remove() error {
	run, err := os.OpenRoot(o.dir)
	if err != nil {
		return err
	}
	defer run.Close()
	removeSummaries(run)
	hasInfo := false
	for _, name := range append(o.temporary, o.Ours...) {
		switch {
		case name == InfoName:
			hasInfo = true
		case spool.IsName(name):
			err = spool.Remove(o.dir)
		default:
			err = trace.IgnoreMissing(run.Remove(name))
		}
		if err != nil {
			return err
		}
	}
	if hasInfo {
		return trace.IgnoreMissing(run.Remove(InfoName))
	}
	return nil
}

// removeSummaries removes the summaries of a run, and their directory if it holds nothing else. The recording is replaced without
// them, too, so that errors do not matter: those of the new one replace them.
func removeSummaries(run *os.Root) {
	dir, err := run.OpenRoot(SummaryName)
	if err != nil {
		return
	}
	defer dir.Close()
	entries, err := fs.ReadDir(dir.FS(), ".")
	for _, e := range entries {
		if err == nil && e.Type().IsRegular() && isSummary(dir, e.Name()) {
			dir.Remove(e.Name())
		}
	}
	run.Remove(SummaryName)
}

// isSummary says whether a file is one of package summary, by its beginning.
func isSummary(dir *os.Root, name string) bool {
	f, err := trace.OpenRegular(dir, name)
	if err != nil {
		return false
	}
	defer f.Close()
	const first = `{"summary_version":`
	head := make([]byte, len(first))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == first
}
