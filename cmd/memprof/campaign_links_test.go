package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// planted are names in an unfinished recording under which somebody may have put something else.
var planted = []string{
	"run.json", ".run.json." + tracetest.RunID + ".tmp", ".ballast." + tracetest.RunID, "report.html",
	"rank0-0000.parquet", "rank0-0000." + tracetest.RunID + ".parquet.tmp", "rank1-0000.parquet", "device-0000.parquet",
	"rank0-gpu0-timeline.png", "rank1-gpu0-map.svg", "rank2-gpu0-split.png",
	"spool", "spool-finished", "spool/owner", "spool/p4711.88123456789", "spool/p4712.88123456789", "spool/p9.9", "spool/p4714.100/problems",
	"spool/p4711.88123456789/process", "spool/p4711.88123456789/strings", "spool/p4711.88123456789/strings.tmp",
	"spool/p4711.88123456789/problems", "spool/p4711.88123456789/000000.seg", "spool/p4711.88123456789/000001.seg",
	"summary", "summary/rank0.json", "summary/rank1.json", "summary/rank2.json",
}

// precious is a directory of somebody else's, with a spool of another recording's in it, and what it holds as text.
func precious(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	mustWrite(t, filepath.Join(dir, "file"), "precious")
	mustMake(t, filepath.Join(dir, "summary"))
	for rank := range 3 {
		mustWrite(t, filepath.Join(dir, "summary", fmt.Sprintf("rank%d.json", rank)), `{"summary_version":1}`)
	}
	mustMake(t, filepath.Join(dir, "p4711.88123456789"))
	mustMake(t, filepath.Join(dir, "memprof-spool-1"))
	mustWrite(t, filepath.Join(dir, "memprof-spool-1", "file"), "precious")
	mustMake(t, filepath.Join(dir, "memprof-spool-2", "p4711.88123456789"))
	mustWrite(t, filepath.Join(dir, "memprof-spool-2", "p4711.88123456789", "000000.seg"), "precious")
	return dir
}

func contentOf(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		stat, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&out, path, stat.Mode())
		if e.Type().IsRegular() {
			text, err := os.ReadFile(path)
			fmt.Fprintf(&out, "%q %v\n", text, err)
		}
		return nil
	})
	assert.NoError(t, err)
	return out.String()
}

// replaceWith puts something hostile in the place of a name in a recording and says what.
func replaceWith(random *rand.Rand, path, theirs string) (what string, err error) {
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	targets := []string{
		"file", "p4711.88123456789", "memprof-spool-1", "memprof-spool-2", "not-there", "memprof-spool-3", "summary", "summary/rank0.json",
		"memprof-spool-2/p4711.88123456789", "memprof-spool-2/p4711.88123456789/000000.seg",
	}
	switch n := random.IntN(len(targets) + 4); n {
	case 0:
		return "a pipe", syscall.Mkfifo(path, 0o600)
	case 1:
		return "a link to itself", os.Symlink(filepath.Base(path), path)
	case 2:
		return "a directory", os.Mkdir(path, 0o700)
	case 3:
		return "a link to /dev/zero", os.Symlink("/dev/zero", path)
	default:
		target := filepath.Join(theirs, targets[n-4])
		if random.IntN(2) == 0 {
			relative, err := filepath.Rel(filepath.Dir(path), target)
			if err != nil {
				return "", err
			}
			target = relative
		}
		return "a link to " + target, os.Symlink(target, path)
	}
}

// TestCampaignLinks has every verb that reads or removes a recording work on hostile ones. Whatever lies in them, files elsewhere
// stay as they are, each verb comes to an end, and says what is wrong with an exit code of its own.
func TestCampaignLinks(t *testing.T) {
	notShort(t)
	long, random := tracetest.Campaign(t)
	tracetest.Rounds(t, long, 12, func(round int) {
		dir, theirs := filepath.Join(t.TempDir(), "run"), precious(t)
		unfinished(t, dir, "")
		if random.IntN(2) == 0 {
			if _, err := collect.RecoverNow(dir); err != nil {
				t.Fatal(err)
			}
		}
		var did []string
		for range 1 + random.IntN(3) {
			name := planted[random.IntN(len(planted))]
			// Through a link that was planted before, the test itself would write elsewhere; at a pipe it would
			// wait, since os.RemoveAll opens the folder around what it removes.
			parent := filepath.Dir(filepath.Join(dir, name))
			if real, err := filepath.EvalSymlinks(parent); err == nil && !strings.HasPrefix(real, dir) {
				continue
			}
			if stat, err := os.Stat(parent); err == nil && !stat.IsDir() {
				continue
			}
			what, err := replaceWith(random, filepath.Join(dir, name), theirs)
			did = append(did, fmt.Sprintf("%s is %s (%v)", name, what, err))
		}
		before := contentOf(t, theirs)
		for _, args := range [][]string{
			{"verify", dir}, {"report", dir}, {"report", "--html", dir}, {"top", "--once", dir}, {"record", "--finish", dir}, {"record", "--finish", dir},
			{"check", "--gate", "reserved.peak < 1GiB", dir}, {"export", "csv", dir},
			{"record", "--force", "--device", "sim", "-o", dir, "--", "true"},
		} {
			ended := make(chan string, 1)
			go func() {
				var stdout, stderr strings.Builder
				if args[0] == "record" {
					_, err := recorder.NewPlace(dir, "", "job", true)
					ended <- fmt.Sprint("3 ", err)
					return
				}
				ended <- fmt.Sprint(run(&stdout, &stderr, args), " ", &stderr)
			}()
			select {
			case said := <-ended:
				if code, _, _ := strings.Cut(said, " "); !strings.Contains("0 1 2 3", code) {
					t.Errorf("round %d, %q: memprof %q: exit code %s", round, did, args, said)
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("round %d, %q: memprof %q does not end", round, did, args)
			}
			after := contentOf(t, theirs)
			assert.Must(t, after == before, "round %d, %q: memprof %q changed\n%s\nto\n%s", round, did, args, before, after)
		}
	})
}
