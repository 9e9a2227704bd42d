package trace

import (
	"os"
	"path/filepath"
)

// PartFile and SetCreate let tests put a disk of their own under a Writer.
type PartFile = partFile

func (o *WriterOptions) SetCreate(create func(dir *os.Root, name string) (PartFile, error)) {
	o.create = create
}

// CreateFile is the real one.
func CreateFile(dir *os.Root, name string) (PartFile, error) { return createFile(dir, name) }

// KeyValues are the metadata that the part was, or would be, written with.
func (p *Part) KeyValues() [][2]string { return p.keyValues() }

// ReadSpool is all events of a spool directory as the Collector sees them.
func ReadSpool(dir string, final bool) (events []Event, texts []string, damage string, err error) {
	spool, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, nil, "", err
	}
	defer spool.Close()
	p, err := openSpoolProcess(spool, filepath.Base(dir))
	if err != nil || p == nil {
		return nil, nil, "", err
	}
	defer p.Close()
	_, err = p.read(final, func(e *Event, slot int64) error {
		events = append(events, *e)
		texts = append(texts, p.strings.text(uint32(e.Context)))
		return nil
	})
	return events, texts, p.damage, err
}

// Kill leaves things as SIGKILL of the collector does: temporary files stay, the lock goes.
func (c *Collector) Kill() {
	for _, p := range c.processes {
		p.from.Close()
		if p.to.part != nil {
			p.to.part.file.Close()
		}
	}
	c.close()
}

// PollLive is Poll for a spool that the calling process writes itself, whose lock it
// cannot see.
func (c *Collector) PollLive() (bool, error) {
	c.mu.Lock()
	for _, p := range c.processes {
		p.silent = 0
	}
	c.mu.Unlock()
	return c.Poll()
}
