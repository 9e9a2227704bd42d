package dataset

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/outfile"
)

// memoryFile is a part in memory.
type memoryFile struct{ *os.File }

// name is a path by which only this process can open the file.
func (f memoryFile) name() string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// Detach opens all parts, so that the run can be read although its directory is removed. From is what the run is called
// from then on.
func (r *Run) Detach(from string) error {
	for _, p := range r.Processes {
		for i := range p.Parts {
			part := &p.Parts[i]
			file, err := openFile(part.Path)
			if err != nil {
				return err
			}
			held := memoryFile{file}
			part.Path, part.held = held.name(), file
		}
	}
	r.Dir, r.Detached = from, true
	return nil
}

// Close closes the parts that exist in memory only.
func (r *Run) Close() {
	for _, p := range r.Processes {
		for i := range p.Parts {
			if held := p.Parts[i].held; held != nil {
				held.Close()
			}
		}
	}
}

// CopyTo copies the part to a run's directory and returns its name there, which appears when it is complete.
func (p *Part) CopyTo(to *os.Root) (string, error) {
	from, err := openFile(p.Path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	name := fmt.Sprintf("%s-%04d", p.Process.Name, p.Number)
	temp := name + tempSuffix(p.Process.RunID)
	path := filepath.Join(to.Name(), name+partSuffix)
	out, err := outfile.Create(to, temp)
	if err != nil {
		return "", trace.DiskError(path, err)
	}
	_, err = io.Copy(out, from)
	if err = errors.Join(err, out.Close()); err == nil {
		err = to.Rename(temp, name+partSuffix)
	}
	if err != nil {
		to.Remove(temp)
	}
	return name + partSuffix, trace.DiskError(path, err)
}
