package recorder

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
)

// WriteSnapshot writes a recording in progress, up to now, to a new directory, and returns its run. Without a name the directory
// is called after the recording.
func WriteSnapshot(dir, output, why string, force bool) (to string, run *dataset.Run, err error) {
	var place *Place
	if output == "" {
		if to, err = freshDir(dir + "-snapshot"); err != nil {
			return "", nil, exit.Usagef("the snapshot: %w (-o DIR writes it elsewhere)", err)
		}
		place = &Place{Dir: to, created: true}
	} else if place, err = MakePlace(output, force); err != nil {
		return "", nil, err
	} else {
		to = output
	}
	if run, err = collect.WriteSnapshot(dir, place.Dir, why); err != nil {
		place.Abandon()
	}
	return to, run, err
}

// Most snapshots that a recorder writes because requests failed, and the least time between two: a job that fails in
// a loop shall not fill the disk.
const (
	mostOwnSnapshots = 16
	failedEvery      = 10 * time.Second
)

// snapshots writes those of a running job, one at a time. While one is written, requests for others become one.
type snapshots struct {
	dir   string // of the recording
	hold  func() (release func())
	say   func(format string, args ...any)
	fail  func(error)
	asked chan string
	end   chan struct{}
	done  sync.WaitGroup

	own    int       // of failed requests
	failed time.Time // of the last one because of a failed request
}

func (s *snapshots) start() {
	s.asked, s.end = make(chan string, 1), make(chan struct{})
	s.done.Go(func() {
		for {
			select {
			case why := <-s.asked:
				s.write(why)
				continue
			case <-s.end:
			}
			select {
			case why := <-s.asked:
				s.write(why)
			default:
			}
			return
		}
	})
}

// stop returns when the last one is written.
func (s *snapshots) stop() {
	close(s.end)
	s.done.Wait()
}

// ask has a snapshot written, unless one waits to be written already.
func (s *snapshots) ask(why string) {
	select {
	case s.asked <- why:
	default:
	}
}

// requestFailed asks for a snapshot because requests failed for good.
func (s *snapshots) requestFailed(int64) {
	if s.own >= mostOwnSnapshots || time.Since(s.failed) < failedEvery {
		return
	}
	s.own++
	s.failed = time.Now()
	s.ask("a request failed for good")
}

func (s *snapshots) write(why string) {
	release := s.hold()
	defer release()
	to, run, err := WriteSnapshot(s.dir, "", why, false)
	if err != nil {
		s.fail(fmt.Errorf("the snapshot (%s) could not be written: %w", why, err))
		return
	}
	events := int64(0)
	for _, p := range run.Processes {
		events += p.Events
	}
	s.say("%s: wrote %s with %s", why, shorten(to), plain.Counted(events, "event"))
}

// shorten is a path without the working directory in front.
func shorten(path string) string {
	if dir, err := os.Getwd(); err == nil && len(path) > len(dir)+1 && path[:len(dir)+1] == dir+"/" {
		return path[len(dir)+1:]
	}
	return path
}

// RecoverRing completes a recording that processes have begun themselves, when they have ended. Until then it keeps the last
// events of each, of so many bytes, and writes snapshots when requests fail.
func RecoverRing(ctx context.Context, stderr io.Writer, dir string, ring int64) (*collect.Summary, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &snapshots{dir: dir, fail: func(err error) { screen.Remark(stderr, "problem", err.Error()) }}
	s.say = func(format string, args ...any) { screen.Complain(stderr, fmt.Sprintf(format, args...)) }
	return collect.RecoverRing(ctx, dir, collect.Options{Ring: ring, Failed: s.requestFailed}, func(c *collect.Collector) {
		s.hold = c.Hold
		s.start()
	}, s.stop)
}
