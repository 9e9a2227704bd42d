package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const (
	mebi  = int64(1) << 20
	milli = int64(1_000_000)
)

// reservingProcess is a process that reserves 100 MiB, of which it hands out 60, and whose context
// takes 300 MiB.
func reservingProcess(pid int, name string) tracetest.Process {
	const base = int64(1) << 44
	event := func(ms int64, kind trace.Kind, addr, requested, provided int64, context int32) trace.Event {
		return trace.Event{Time: ms * milli, Kind: kind, Addr: addr, Requested: requested, Provided: provided, Context: context}
	}
	return tracetest.Process{
		Meta:  dataset.ProcessMeta{Name: name, PID: pid, Rank: -1, LocalRank: -1, WorldSize: -1},
		Texts: []string{"", "growth=double coalesces=1 uuid=GPU-22222222", "what=context", "call=cudaMalloc\tlibrary=libnccl.so.2"},
		Events: []trace.Event{
			event(10, trace.KindOverhead, 0, 0, 300*mebi, 2),
			event(20, trace.KindArena, base, -1, 1<<40, 1),
			event(30, trace.KindMap, base, 0, 100*mebi, 0),
			event(40, trace.KindExternalAlloc, 5<<30, 16*mebi, 16*mebi, 3),
			event(50, trace.KindAlloc, base, 60*mebi, 60*mebi, 0),
			event(1000, trace.KindFree, base, 60*mebi, 60*mebi, 0),
		},
	}
}

// usedReadings are readings of a machine with two GPUs, the second of which the job uses: of the whole
// device, and of each process that byProcess names.
func usedReadings(used int64, byProcess map[int]int64) tracetest.Process {
	texts := []string{"", "all=1"}
	read := func(ms int64, bytes int64, context int32) trace.Event {
		return trace.Event{Time: ms * milli, Kind: trace.KindDeviceUsed, Device: 1, Arena: trace.NoArena, Requested: 80 << 30, Provided: bytes, Context: context}
	}
	events := []trace.Event{read(0, 1000*mebi, 1), read(60, used, 1), read(1060, used, 1)}
	for pid, bytes := range byProcess {
		texts = append(texts, "pid="+strings.TrimSpace(jsonText(pid)))
		events = append(events, read(60, bytes, int32(len(texts)-1)), read(1060, bytes, int32(len(texts)-1)))
	}
	return tracetest.Process{Meta: dataset.ProcessMeta{Name: dataset.ReadingsName, Rank: -1}, Events: events, Texts: texts}
}

func jsonText(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

// writeAccounting makes a run on two GPUs.
func writeAccounting(t *testing.T, processes ...tracetest.Process) (dir string) {
	t.Helper()
	dir = t.TempDir()
	tracetest.WriteRun(t, dir, processes...)
	err := dataset.WriteInfo(dir, &dataset.Info{
		ID: tracetest.RunID, Command: []string{"job"}, Options: map[string]string{dataset.OptionReadings: dataset.ReadingsOfNVML},
		GPUs: []dataset.GPU{{Index: 0, UUID: "GPU-11111111", Memory: 80 << 30}, {Index: 1, UUID: "GPU-22222222", Memory: 80 << 30}},
	})
	assert.NoError(t, err)
	return dir
}

// memprof runs a command in this process.
func memprof(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(&out, &errs, args)
	return code, out.String(), errs.String()
}

// accountingOf is what report --json says of the peak of each process.
type accountingOf struct {
	Process string
	Account struct {
		Scope     string   `json:"scope"`
		Processes []string `json:"processes"`
		Missing   string   `json:"missing"`
		Peak      struct {
			Tensors     int64  `json:"requested"`
			Reserve     int64  `json:"reserve"`
			Other       int64  `json:"other_libraries"`
			Context     int64  `json:"driver_overhead"`
			Used        *int64 `json:"used"`
			Rest        *int64 `json:"rest"`
			Unexplained *int64 `json:"unexplained"`
			Why         string `json:"unexplained_unknown"`
		} `json:"peak"`
	} `json:"accounting"`
}

func reportAccounting(t *testing.T, dir string) (found []accountingOf, stderr string) {
	t.Helper()
	code, out, stderr := memprof("report", "--json", dir)
	assert.Must(t, code == 0, "report ended with %d: %s", code, stderr)
	var all struct {
		Processes []struct {
			Process string            `json:"process"`
			Devices []json.RawMessage `json:"devices"`
		} `json:"processes"`
	}
	assert.NoError(t, json.Unmarshal([]byte(out), &all))
	for _, p := range all.Processes {
		one := accountingOf{Process: p.Process}
		assert.NoError(t, json.Unmarshal(p.Devices[0], &one))
		found = append(found, one)
	}
	return found, stderr
}

// 64 MiB that are in no event are unexplained where the driver tells processes apart, and
// in the rest of the whole card where it does not.
func TestAccountingFindsTheHidden(t *testing.T) {
	const explained, hidden, before = 416 * mebi, 64 * mebi, 1000 * mebi
	one, two := reservingProcess(71, "pid71"), reservingProcess(72, "pid72")
	tests := []struct {
		name      string
		processes []tracetest.Process
		scope     string
		who       int   // processes summed
		used      int64 // of the first process's found
		rest      int64
		known     bool // that all the rest is unexplained
	}{
		{"by process", []tracetest.Process{one, two, usedReadings(5000*mebi, map[int]int64{71: explained + hidden, 72: explained})}, "process", 1, explained + hidden, hidden, true},
		{"by device", []tracetest.Process{one, usedReadings(before+explained+hidden, nil)}, "device", 1, before + explained + hidden, before + hidden, false},
		{"two by device", []tracetest.Process{one, two, usedReadings(before+2*explained+hidden, nil)}, "device", 2, before + 2*explained + hidden, before + hidden, false},
		{"ids of others", []tracetest.Process{one, usedReadings(before+explained-hidden, map[int]int64{5: mebi})}, "device", 1, before + explained - hidden, before - hidden, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := writeAccounting(t, test.processes...)
			found, stderr := reportAccounting(t, dir)
			assert.That(t, stderr == "", "stderr: %s", stderr)
			b := found[0].Account
			assert.Must(t, b.Scope == test.scope && len(b.Processes) == test.who && b.Missing == "", "%+v", b)
			assert.That(t, b.Peak.Used != nil && *b.Peak.Used == test.used && *b.Peak.Rest == test.rest,
				"peak %s, want used %d and a rest of %d", jsonText(b.Peak), test.used, test.rest)
			if (b.Peak.Unexplained != nil) != test.known || test.known && *b.Peak.Unexplained != test.rest || (b.Peak.Why == "") != test.known {
				t.Errorf("peak %s, want unexplained to be known: %v", jsonText(b.Peak), test.known)
			}
			if n := int64(test.who); b.Peak.Tensors != n*60*mebi || b.Peak.Reserve != n*40*mebi || b.Peak.Other != n*16*mebi || b.Peak.Context != n*300*mebi {
				t.Errorf("peak %s", jsonText(b.Peak))
			}
		})
	}
}

// Recordings whose readings are damaged or gone are reported, say so, and pass no gate.
func TestAccountingWithoutGoodReadings(t *testing.T) {
	part := func(dir string) string { return filepath.Join(dir, "device-0000.parquet") }
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string) error
		says   string
		verify int
	}{
		{"cut", func(_ *testing.T, dir string) error { return os.Truncate(part(dir), 200) }, "truncated", exit.Usage},
		{"gone", func(_ *testing.T, dir string) error { return os.Remove(part(dir)) }, "the recording has no device readings", 0},
		{"nonsense", func(t *testing.T, dir string) error {
			tracetest.Rewrite(t, part(dir), func(rows []trace.Event) []trace.Event {
				rows[1].Provided = -5
				return rows
			})
			return nil
		}, "-5 bytes used on device 1", exit.Violated},
		{"no library", func(_ *testing.T, dir string) error {
			info, err := dataset.ReadInfo(dir)
			if err != nil {
				return err
			}
			info.Options[dataset.OptionReadings] = "none: libnvidia-ml.so.1 is not on this machine"
			if err := dataset.WriteInfo(dir, info); err != nil {
				return err
			}
			return os.Remove(part(dir))
		}, "libnvidia-ml.so.1 is not on this machine", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			training, texts := tracetest.Training(100)
			dir := writeAccounting(t, tracetest.Process{Events: training, Texts: texts}, usedReadings(2000*mebi, nil))
			assert.NoError(t, test.damage(t, dir))
			found, _ := reportAccounting(t, dir)
			b := found[0].Account
			assert.That(t, len(found) == 1 && strings.Contains(b.Missing, test.says) && b.Peak.Used == nil && b.Peak.Unexplained == nil,
				"found %s, want %q missing", jsonText(found), test.says)
			code, _, stderr := memprof("check", "--gate", "accounting.unexplained < 2%", dir)
			assert.That(t, code == exit.Usage && strings.Contains(stderr, "no value for accounting.unexplained"), "check ended with %d: %s", code, stderr)
			if code, out, stderr := memprof("verify", dir); test.verify != 0 && code != test.verify {
				t.Errorf("verify ended with %d, want %d: %s%s", code, test.verify, out, stderr)
			}
		})
	}
}

func TestAccountingOfAPartAlone(t *testing.T) {
	dir := writeAccounting(t, reservingProcess(71, "pid71"), usedReadings(2000*mebi, nil))
	found, _ := reportAccounting(t, filepath.Join(dir, "pid71-0000.parquet"))
	b := found[0].Account
	assert.That(t, strings.Contains(b.Missing, "a part alone") && b.Peak.Used == nil, "%s", jsonText(found))
}

// A gate on what is unknown is a mistake with a reason, never a pass.
func TestCheckGatesAccounting(t *testing.T) {
	own := writeAccounting(t, reservingProcess(71, "pid71"), usedReadings(5000*mebi, map[int]int64{71: 520 * mebi}))
	card := writeAccounting(t, reservingProcess(71, "pid71"), usedReadings(1520*mebi, nil))
	disturbed := reservingProcess(71, "pid71")
	disturbed.Texts[2] = "what=context\thow=device"
	shared := writeAccounting(t, disturbed, usedReadings(5000*mebi, map[int]int64{71: 520 * mebi}))
	tests := []struct {
		dir, gate string
		want      int
		says      string
	}{
		{own, "accounting.unexplained < 20.1%", 0, ""},
		{own, "accounting.unexplained < 19.9%", exit.Violated, ""},
		{own, "accounting.unexplained.bytes == 104MiB", 0, ""},
		{own, "accounting.other_libraries == 16MiB", 0, ""},
		{own, "accounting.driver_overhead == 300MiB", 0, ""},
		{own, "used.peak == 520MiB", 0, ""},
		{card, "used.peak == 1520MiB", 0, ""},
		{card, "accounting.driver_overhead == 300MiB", 0, ""},
		{card, "accounting.unexplained < 99%", exit.Usage, "no value for accounting.unexplained: the reading is of the whole card"},
		{shared, "accounting.unexplained < 99%", exit.Usage, "no value for accounting.unexplained: driver overhead is unknown"},
		{shared, "accounting.driver_overhead < 99GiB", exit.Usage, "no value for accounting.driver_overhead: it was measured as growth of the whole card"},
		{shared, "used.peak == 520MiB", 0, ""},
	}
	for _, test := range tests {
		code, out, stderr := memprof("check", "--gate", test.gate, test.dir)
		assert.That(t, code == test.want && strings.Contains(stderr, test.says), "%s: exit %d, want %d: %s%s", test.gate, code, test.want, out, stderr)
	}
}

// The recordings of the zoo were made on shared cards: what was measured there is no number,
// and that they have no readings is said without alarm.
func TestSharedSamples(t *testing.T) {
	notShort(t)
	for _, model := range []string{"moe", "googlenet"} {
		dir := filepath.Join("..", "..", "samples", "zoo", model)
		code, out, stderr := memprof("report", "--all", dir)
		if code != 0 || strings.Contains(out, "missing") || !strings.Contains(out, "the recording has no device readings") || !strings.Contains(out, "libraries unknown") {
			t.Errorf("%s: %d %s\n%s", model, code, stderr, out)
		}
		assert.That(t, !regexp.MustCompile(`│ +-[0-9]`).MatchString(out), "%s: a negative number:\n%s", model, out)
		if code, _, stderr := memprof("check", "--gate", "accounting.driver_overhead < 99GiB", dir); code != exit.Usage || !strings.Contains(stderr, "other processes may have allocated or freed memory") {
			t.Errorf("%s: check ended with %d: %s", model, code, stderr)
		}
	}
}
