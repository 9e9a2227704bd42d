package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// unfinished makes the recording in dir what a killed recorder leaves: a process that is converted and not removed,
// one that is converted in part, one that is not, and one that could not record.
func unfinished(t *testing.T, dir, spools string) {
	t.Helper()
	mustMake(t, dir)
	assert.NoError(t, dataset.WriteInfo(dir, &dataset.Info{ID: tracetest.RunID}))
	assert.NoError(t, spool.Make(dir, spools))
	spoolDir := filepath.Join(dir, spool.Name)
	events, texts := tracetest.Training(300)
	for pid := range 3 {
		s := tracetest.NewSpool(t, spoolDir, 4711+pid, pid)
		for _, e := range events {
			s.Append(e, texts[e.Context])
		}
		s.Problem(fmt.Sprintf("problem of rank %d", pid))
		if pid == 0 {
			s.SetState(tracetest.Closed)
		} else {
			s.Claim() // it died inside an arena
		}
		s.Close()
	}
	never := mustMake(t, filepath.Join(spoolDir, "p4714.100"))
	mustWrite(t, filepath.Join(never, "problems"), "cannot record: no room\n")
	mustWrite(t, filepath.Join(dir, ".ballast."+tracetest.RunID), "")
}

// whole is what there is to know of a recording: its files, and the events and endings of its processes.
func whole(t *testing.T, dir string) string {
	t.Helper()
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	names := slices.DeleteFunc(namesIn(t, dir), func(name string) bool { return name == dataset.SummaryName }) // written after all else
	out := fmt.Sprintln(names, run.Info.Recovered, run.Info.Problems, run.Info.Processes)
	for _, p := range run.Processes {
		events, err := p.ReadAll()
		assert.NoError(t, err)
		out += fmt.Sprintln(p.Name, p.Events, len(events), p.Checksums(), p.Ending)
	}
	return out
}

// TestCampaignKilledRecover kills `memprof record --finish` at every system call. Another one must end what it began, whether
// the spool lies in the recording or elsewhere, and what can be read before that must be whole.
func TestCampaignKilledRecover(t *testing.T) {
	notShort(t)
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("spool elsewhere %v", elsewhere), func(t *testing.T) {
			if long, _ := tracetest.Campaign(t); long == 0 && !elsewhere {
				t.Skip("the other spool has all calls of this one and more")
			}
			k := newKiller(t)
			dir, spools := filepath.Join(t.TempDir(), "run"), mustMake(t, filepath.Join(t.TempDir(), "spools"))
			prepare := func() {
				assert.NoError(t, os.RemoveAll(dir))
				if elsewhere {
					unfinished(t, dir, spools)
				} else {
					unfinished(t, dir, "")
				}
			}
			prepare()
			if _, err := collect.Recover(context.Background(), dir, false); err != nil {
				t.Fatal(err)
			}
			want := whole(t, dir)
			for _, says := range []string{"rank2", "pid4714: cannot record: no room", "rank1: problem of rank 1", "[rank0 rank1 rank2] "} {
				assert.Must(t, strings.Contains(strings.ReplaceAll(want, "]\n", "] \n"), says), "without a kill there is no %q in\n%s", says, want)
			}
			count := func(calls string) int {
				prepare()
				_, n, _ := k.run(t, calls, 0, nil, "record", "--finish", dir)
				return n
			}
			k.each(t, count, func(calls string, at int) {
				prepare()
				_, _, said := k.run(t, calls, at, nil, "record", "--finish", dir)
				where := fmt.Sprintf("killed at call %d of %s: %s", at, calls, said)
				if run, err := dataset.Open(dir); err == nil && len(run.Processes) != 3 {
					t.Errorf("%s: a recording that is not whole can be read: %d processes", where, len(run.Processes))
				} else if err != nil && !errors.Is(err, trace.ErrUnfinished) {
					t.Errorf("%s: it cannot be read: %v", where, err)
				}
				_, err := collect.Recover(context.Background(), dir, false)
				assert.Must(t, err == nil, "%s: recover: %v", where, err)
				assert.Diff(t, want, whole(t, dir), "%s: recovered again", where)
				left := namesIn(t, spools)
				assert.That(t, len(left) <= 0, "%s: left behind: %v", where, left)
			})
		})
	}
}

// TestCampaignKilledRecorder kills `memprof record --force` at every system call, from the removal of the recording
// before it to that of its own spool. The job goes on, recover has all that it allocated, and where it never started another
// record can take the place.
func TestCampaignKilledRecorder(t *testing.T) {
	notShort(t)
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("spool elsewhere %v", elsewhere), func(t *testing.T) {
			if long, _ := tracetest.Campaign(t); long == 0 && !elsewhere {
				t.Skip("the other spool has all calls of this one and more")
			}
			k, b := newKiller(t), newBench(t)
			spools := mustMake(t, b.path("spools"))
			args := []string{"record", "-q", "--device", "sim", "--force", "-o", b.path("run")}
			if elsewhere {
				args = append(args, "--spool", spools)
			}
			args = append(args, "--", b.job, "log", b.path("log"), "churn", "7", "40", "touch", b.path("done"))
			env := []string{"MEMPROF_CACHE=" + b.cache}
			prepare := func() {
				for _, name := range []string{"run", "log", "done"} {
					assert.NoError(t, os.RemoveAll(b.path(name)))
				}
				unfinished(t, b.path("run"), "")
			}
			prepare()
			k.run(t, "changing", 0, env, args...) // installs the hook
			count := func(calls string) int {
				prepare()
				_, n, _ := k.run(t, calls, 0, env, args...)
				return n
			}
			k.each(t, count, func(calls string, at int) {
				prepare()
				_, _, said := k.run(t, calls, at, env, args...)
				where := fmt.Sprintf("killed at call %d of %s: %s", at, calls, said)
				if !b.exists("log") {
					_, err := recorder.NewPlace(b.path("run"), "", "job", true)
					assert.Must(t, err == nil, "%s: record again: %v", where, err)
					assert.NoError(t, spool.Remove(b.path("run")))
				} else {
					assert.Must(t, b.exists("done"), "%s: the job has not come to its end", where)
					_, err := collect.Recover(context.Background(), b.path("run"), false)
					assert.Must(t, err == nil, "%s: recover: %v", where, err)
					b.sameStart("run", "log", 0)
					memprofIn(t, exit.Fine, "verify", b.path("run"))
				}
				for _, name := range append(namesIn(t, b.path("run")), namesIn(t, spools)...) {
					assert.That(t, name == "run.json" || name == dataset.SummaryName || strings.HasSuffix(name, ".parquet") || strings.HasPrefix(name, ".run.json."),
						"%s: %s is left", where, name)
				}
			})
		})
	}
}
