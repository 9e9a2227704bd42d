package spool

import (
	"os"
	"path/filepath"

	"github.com/memprof/memprof/trace"
)

// ReadAll is all events of a process's directory as the collector sees them.
func ReadAll(dir string, final bool) (events []trace.Event, texts []string, damage string, err error) {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, nil, "", err
	}
	defer root.Close()
	p, err := openProcess(root, filepath.Base(dir))
	if err != nil || p == nil {
		return nil, nil, "", err
	}
	defer p.Close()
	_, err = p.Read(final, func(e *trace.Event, slot int64) error {
		events = append(events, *e)
		texts = append(texts, p.Text(uint32(e.Context)))
		return nil
	})
	return events, texts, p.Damage, err
}
