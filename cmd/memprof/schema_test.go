package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/analysis/verify"
	"github.com/memprof/memprof/cmd/memprof/help"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/top"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// anyName are the objects whose names are the recording's: names of options, arenas, processes.
var anyName = []string{"processes[].arenas[].options", "run.options"}

// spot is what stands somewhere in documents.
type spot struct {
	types map[string]bool
	seen  int // objects that have it; elements of a list count with the list
}

// shape gathers the places of documents.
type shape struct {
	places  map[string]*spot
	objects map[string]int // how many objects were seen at a path
}

func newShape() *shape { return &shape{map[string]*spot{}, map[string]int{}} }

func (s *shape) note(path, kind string) {
	p := s.places[path]
	if p == nil {
		p = &spot{types: map[string]bool{}}
		s.places[path] = p
	}
	p.types[kind] = true
	p.seen++
}

func (s *shape) add(path string, value any) {
	switch value := value.(type) {
	case nil:
		s.note(path, "null")
	case bool:
		s.note(path, "boolean")
	case string:
		s.note(path, "string")
	case json.Number:
		kind := "integer"
		if strings.ContainsAny(value.String(), ".eE") {
			kind = "number"
		}
		s.note(path, kind)
	case []any:
		s.note(path, "list")
		for _, item := range value {
			s.add(path+"[]", item)
		}
	case map[string]any:
		s.note(path, "object")
		s.objects[path]++
		for name, item := range value {
			if slices.Contains(anyName, path) {
				name = "*"
			}
			s.add(strings.TrimPrefix(path+"."+name, "."), item)
		}
	}
}

// lines are the places in order, an object's before its own. Where integers and numbers stand, a
// number does.
func (s *shape) lines() []string {
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(s.places)) {
		p := s.places[path]
		if p.types["number"] {
			delete(p.types, "integer")
		}
		shown := path
		if parent := parentOf(path); !strings.HasSuffix(path, "[]") && path != "" && p.seen < s.objects[parent] && !strings.HasSuffix(path, "*") {
			shown += "?"
		}
		if shown == "" {
			shown = "(all)"
		}
		lines = append(lines, fmt.Sprintf("%-60s %s", shown, strings.Join(slices.Sorted(maps.Keys(p.types)), " or ")))
	}
	return lines
}

func parentOf(path string) string {
	at := strings.LastIndexByte(path, '.')
	return path[:max(at, 0)]
}

// documents are what the verbs print, on recordings that have all sorts of things.
func documents(t *testing.T) map[string][][]byte {
	t.Helper()
	docs := map[string][][]byte{}
	dir := t.TempDir()
	events, texts := tracetest.Training(4000)
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts, Meta: dataset.ProcessMeta{Name: "rank0", PID: 1, WorldSize: 1}})
	add := func(name string, code int, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		got := run(&stdout, &stderr, args)
		assert.Must(t, got == code, "memprof %s: exit code %d\n%s", strings.Join(args, " "), got, stderr.String())
		docs[name] = append(docs[name], stdout.Bytes())
	}
	const samples = "../../samples/"
	for _, sample := range []string{"alexnet", "resnet50"} {
		add("report", exit.Fine, "report", "--json", samples+sample)
		add("verify", exit.Fine, "verify", "--json", samples+sample)
	}
	docs["report"] = append(docs["report"], goldenReports(t)...)
	failed := failedRecording(t)
	const imported, cut = samples + "snapshots/native.pickle.gz", samples + "snapshots/pools-expandable-cut.pickle.gz"
	for _, path := range []string{failed, imported, cut, samples + "irregular/ring"} {
		add("report", exit.Fine, "report", "--json", path)
		add("verify", exit.Fine, "verify", "--json", path)
	}
	for _, path := range []string{failed, imported} {
		add("fit", exit.Fine, "fit", "--json", path)
	}
	for _, pair := range [][2]string{{failed, failed}, {failed, imported}, {imported, imported}, {samples + "alexnet", failed}, {samples + "irregular/ring", samples + "alexnet"}} {
		add("diff", exit.Fine, "diff", "--json", pair[0], pair[1])
	}
	add("diff", exit.Fine, "diff", "--json", "--base", imported, "--base", cut, "--new", cut, "--new", imported)
	add("kv", exit.Fine, "kv", "--json", "--synthetic", "sharegpt", "--rate", "inf", "--steps", "50", "--model", "llama-3-8b", "--memory", "12GiB")
	add("kv-sizes", exit.Fine, "kv", "--json", "--model", kvConfigs+"jamba-v0.1.json", "--policy", "max,hybrid:16")
	add("kv-sizes", exit.Fine, "kv", "--json", "--model", "llama-3-8b", "--card", "80GiB")
	add("import", exit.Fine, "import", "--json", "-o", filepath.Join(t.TempDir(), "run"), samples+"snapshots/native.pickle.gz")
	add("report-at", exit.Fine, "report", "--json", "--at", "5000", samples+"gpt2")
	docs["report-at"] = append(docs["report-at"], mustRead(t, "../../report/testdata/moments.json"))
	add("check", exit.Violated, "check", "--json", samples+"alexnet", samples+"resnet50", "--gate", "waste.internal < 1%", "--gate", "reserved.peak < 1TiB", "--gate", "oom.count == 0")
	relative := []string{"check", "--json", "--baseline", filepath.Join(t.TempDir(), "b.json"), "--gate", "requested.peak < baseline + 2%"}
	memprofIn(t, exit.Fine, append(slices.Clone(relative), "--update-baseline", samples+"alexnet")...)
	add("check", exit.Violated, append(relative, samples+"resnet50")...)
	unended := t.TempDir()
	tracetest.WriteRun(t, unended, tracetest.Process{Events: events, Texts: texts, Meta: dataset.ProcessMeta{Name: "rank0", PID: 1, WorldSize: 1}})
	assert.NoError(t, dataset.WriteInfo(unended, &dataset.Info{ID: tracetest.RunID, Command: []string{"job"}}))
	add("check", exit.Fine, "check", "--json", unended)
	assert.NoError(t, dataset.WriteInfo(unended, &dataset.Info{ID: tracetest.RunID, Command: []string{"job"}, Snapshot: &dataset.Snapshot{Why: "SIGUSR1"}}))
	add("report", exit.Fine, "report", "--json", unended)
	add("check-list", exit.Fine, "check", "--list", "--json")
	add("diff", exit.Fine, "diff", "--json", samples+"alexnet", samples+"resnet50")
	docs["diff"] = append(docs["diff"], mustRead(t, "../../report/testdata/diff.json"), mustRead(t, "../../report/testdata/diff_nothing.json"))
	add("fit", exit.Fine, "fit", "--json", samples+"alexnet")
	add("fit", exit.Violated, "fit", "--json", "--card", "1GiB", samples+"alexnet")
	add("fit", exit.Fine, "fit", "--json", dir)
	add("fit-engine", exit.Fine, "fit", "--json", "--engine", "testdata/engine")
	add("fit-engine", exit.Fine, "fit", "--json", "--engine=whole:1,2,4,8", "testdata/engine")
	planned := planOf(t, events, texts)
	add("fit", exit.Fine, "fit", "--json", planned)
	add("report", exit.Fine, "report", "--json", planned)
	var tries bytes.Buffer // of jobs that memprof runs
	rows := []fit.Row{{Need: fit.Need{Allocator: fit.Allocator{Allocator: "torch", Setting: "native"}}}}
	assert.NoError(t, report.FitTryJSON(&tries, &report.FitTries{Tries: []report.FitTry{{Value: "16", Rows: rows}}}))
	rows[0].Fits = true
	assert.NoError(t, report.FitTryJSON(&tries, &report.FitTries{Tries: []report.FitTry{{Value: "16", Rows: rows}}}))
	docs["fit-try"] = bytes.SplitAfter(bytes.TrimSpace(tries.Bytes()), []byte("\n}\n"))
	for _, golden := range []string{"kv", "kv-sweep"} {
		docs["kv"] = append(docs["kv"], mustRead(t, "../../report/kv/testdata/"+golden+".json"))
	}
	add("top", exit.Fine, "top", "--once", "--json", dir)
	const ranOut = "../../analysis/oomtext/testdata/texts/"
	for _, text := range []string{"torch29-other-ranks", "vllm-no-blocks", "tensorflow-dump-whole", "host-worker-killed", "torch-reserved-fragmentation"} {
		add("explain", exit.Fine, "explain", "--json", ranOut+text+".txt")
	}
	for _, log := range []string{
		"total_gpu_memory (80GiB)\nmodel weights take 15GiB; non_torch_memory takes 1GiB; PyTorch activation peak memory takes 1GiB; the rest of the memory reserved for KV Cache is 5GiB",
		"Available KV cache memory: 5 GiB\nGPU KV cache size: 7 tokens\nEstimated CUDA graph memory: 1 GiB total",
		"max_total_num_tokens=1, available_gpu_mem=1 GB\nCapture cuda graph end. mem usage=1 GB",
	} {
		file := filepath.Join(dir, "start.log")
		mustWrite(t, file, log)
		add("explain-start", exit.Fine, "explain", "--json", file)
	}
	add("doctor", exit.Fine, "doctor", "--json")
	script := filepath.Join(dir, "script")
	mustWrite(t, script, "alloc a 3M\nalloc b 1G\nfree a\ngc\n")
	add("replay", exit.Fine, "lab", "replay", "--ops", script, "--limit", "16M", "--json")
	bad := filepath.Join(dir, "bad")
	tracetest.WriteRun(t, mustMake(t, bad), tracetest.Process{Events: events, Texts: texts, Meta: dataset.ProcessMeta{Name: "rank0", PID: 1, WorldSize: 1}})
	tracetest.Rewrite(t, filepath.Join(bad, "rank0-0000.parquet"), func(rows []trace.Event) []trace.Event {
		rows[10].Requested++
		return rows
	})
	add("verify", exit.Violated, "verify", "--json", bad)
	gone := mustMake(t, filepath.Join(dir, "gone"))
	tracetest.WriteRun(t, gone, tracetest.Process{Events: events, Texts: texts, Meta: dataset.ProcessMeta{Name: "rank0", PID: 1, WorldSize: 2}})
	assert.NoError(t, dataset.WriteInfo(gone, &dataset.Info{ID: tracetest.RunID, Processes: []string{"rank0", "rank1"}}))
	add("verify", exit.Violated, "verify", "--json", gone)
	killed := mustMake(t, filepath.Join(dir, "killed"))
	assert.NoError(t, dataset.WriteInfo(killed, &dataset.Info{ID: tracetest.RunID}))
	hook := tracetest.NewSpool(t, mustMake(t, filepath.Join(killed, spool.Name)), 4711, 0)
	for i := range events[:100] {
		hook.Append(events[i], "")
	}
	hook.Close()

	one, name := int64(1), int32(1)
	rate := 0.5
	memory := top.Memory{Course: []int64{1}, Categories: []top.Share{{}}, Modules: []top.Share{{}}, Arena: &name, Stream: &one, Pool: "1", Tag: "kv", IsPaused: true, MaxRequested: &one, OOMs: &one}
	busy := top.Process{Rate: &rate, Problem: "none", Devices: []top.Memory{memory}, Arenas: []top.Memory{memory}}
	docs["top"] = append(docs["top"], mustMarshal(t, top.View{Command: []string{}, Processes: []top.Process{busy}, Cards: []top.Card{{Used: &one}, {}}, Engines: []top.Engine{{
		Problem: "gone", Replicas: []top.Replica{{KVUsage: &rate, HitRate: &rate, Recent: &rate, Tokens: &one, Running: &one, Waiting: &one}, {}},
	}}}))
	native := verifiedRun{Processes: []verified{{Result: verify.Result{Complete: true, Observed: &torchalloc.Followed{}}}}}
	nodes := makeFleet(t, 72)
	add("report-many", exit.Fine, "report", "--json", nodes)
	docs["verify"] = append(docs["verify"], mustMarshal(t, native)) // no sample is of --allocator native
	docs["verify"] = append(docs["verify"], mustMarshal(t, verifiedRun{Processes: []verified{{Result: verify.Result{Dropped: 1}}}}))
	docs["snapshot"] = [][]byte{mustMarshal(t, jsonSnapshot{Processes: []jsonSnapshotProcess{{}}})} // of a job that runs
	docs["rerun"] = [][]byte{mustMarshal(t, jsonRerun{})}                                           // what rerun prints needs CUDA
	return docs
}

// planOf is a dry run with these events that does not know the size of a workspace.
func planOf(t *testing.T, events []trace.Event, texts []string) string {
	t.Helper()
	dir := t.TempDir()
	first := slices.IndexFunc(events, func(e trace.Event) bool { return e.Kind == trace.KindAlloc })
	label := events[first]
	label.Kind, label.Requested, label.Provided, label.Context = trace.KindLabel, 0, 0, int32(len(texts))
	events = slices.Insert(slices.Clone(events), first+1, label)
	texts = append(slices.Clone(texts), "workspace_most=1073741824")
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts, Meta: dataset.ProcessMeta{Name: "rank0", PID: 1, WorldSize: 1}})
	status := 0
	assert.NoError(t, dataset.WriteInfo(dir, &dataset.Info{ID: tracetest.RunID, Command: []string{"job"}, Source: dataset.DryRun, ExitStatus: &status}))
	return dir
}

// goldenReports are the documents that golden files of package report hold, divided by subject.
func goldenReports(t *testing.T) [][]byte {
	t.Helper()
	parts := map[string]map[string]any{} // of subjects, by fixture
	files, err := filepath.Glob("../../report/testdata/json/*.json")
	assert.NoError(t, err)
	for _, file := range files {
		fields := map[string]any{}
		mustDecode(t, file, &fields)
		parts[strings.TrimSuffix(filepath.Base(file), ".json")] = fields
	}
	documents := parts["processes"]
	delete(parts, "processes")
	var texts [][]byte
	for fixture, document := range documents {
		document := document.(map[string]any)
		for at, process := range document["processes"].([]any) {
			devices := []any{}
			for i := 0; parts["device"][fmt.Sprintf("%s %d.%d", fixture, at, i)] != nil; i++ {
				device := map[string]any{}
				for _, of := range parts {
					fields := of[fmt.Sprintf("%s %d.%d", fixture, at, i)]
					if same, ok := fields.(string); ok {
						fields = of[same]
					}
					if fields != nil {
						maps.Copy(device, fields.(map[string]any))
					}
				}
				devices = append(devices, device)
			}
			process.(map[string]any)["devices"] = devices
		}
		texts = append(texts, mustMarshal(t, document))
	}
	return texts
}

func mustDecode(t *testing.T, path string, into any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(mustRead(t, path)))
	decoder.UseNumber()
	err := decoder.Decode(into)
	assert.Must(t, err == nil, "%s: %v", path, err)
}

// failedRecording is of a job that a limit made fail, on the simulated device.
func failedRecording(t *testing.T) string {
	b := newBench(t)
	cmd, stderr := b.memprof("record", "--device", "sim", "-q", "--limit", "64MiB", "-o", b.path("failed"), "--",
		b.job, "begin", "forward", "alloc", "a", "40M", "alloc", "b", "40M")
	err := cmd.Run()
	assert.Must(t, err != nil && cmd.ProcessState.ExitCode() == 10, "the job ended with %v, want exit code 10\n%s", err, stderr)
	return b.path("failed")
}

func mustMake(t *testing.T, dir string) string {
	t.Helper()
	assert.NoError(t, os.MkdirAll(dir, 0o700))
	return dir
}

func mustMarshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	assert.NoError(t, err)
	return text
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NoError(t, err)
	return text
}

// Each place of a document is in its schema, and no other.
func TestJSONSchemas(t *testing.T) {
	docs := documents(t)
	for name, texts := range docs {
		schema := compiledSchema(t, name)
		s := newShape()
		for _, text := range texts {
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.UseNumber()
			var value any
			err := decoder.Decode(&value)
			assert.Must(t, err == nil, "%s: %v\n%s", name, err, text)
			s.add("", value)
			assert.NoError(t, schema.Validate(value))
		}
		for at, p := range s.places {
			assert.That(t, !p.types["list"] || !p.types["null"], "%s: %s is a list, and null in some document", name, at)
		}
		got := strings.Join(s.lines(), "\n") + "\n"
		path := filepath.Join("help", "schema", name+".txt")
		if *update {
			assert.NoError(t, os.WriteFile(path, []byte(got), 0o644))
			continue
		}
		assert.Diff(t, string(mustRead(t, path)), got, "%s (-documented +printed)", path)
	}
	for _, name := range help.Documents() {
		assert.That(t, docs[name] != nil, "schema/%s.txt is of no document", name)
	}
}

// compiledSchema is the JSON Schema that help prints of a document, in a foreign implementation.
func compiledSchema(t *testing.T, name string) *jsonschema.Schema {
	text, err := jsonschema.UnmarshalJSON(strings.NewReader(memprofIn(t, exit.Fine, "help", "json-schema", name)))
	assert.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	assert.NoError(t, compiler.AddResource(name, text))
	schema, err := compiler.Compile(name)
	assert.NoError(t, err)
	return schema
}

// Every verb that has --json has a schema.
func TestJSONSchemaOfEachVerb(t *testing.T) {
	for _, verb := range newRootCommand().Commands() {
		if verb.Flags().Lookup("json") == nil {
			continue
		}
		assert.That(t, slices.Contains(help.Documents(), verb.Name()), "memprof %s prints JSON, and schema/%s.txt is missing", verb.Name(), verb.Name())
	}
}

// TestRunsOfProcesses: what a process writes that begins its recording itself is what readers know.
func TestRunsOfProcesses(t *testing.T) {
	for file, want := range map[string]string{
		"_place.py":     fmt.Sprintf("SCHEMA_VERSION = %d ", dataset.SchemaVersion),
		"_recording.py": fmt.Sprintf("%s=%q", dataset.OptionBegan, dataset.BeganInProcess),
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "hooks", "python", "memprof", file))
		assert.NoError(t, err)
		assert.That(t, strings.Contains(string(text), want), "%s has no %s", file, want)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "hooks", "python", "memprof", "_place.py"))
	assert.NoError(t, err)
	assert.That(t, strings.Contains(string(text), `READINGS = "`+dataset.ReadingsOfDriver), "_place.py names other readings than %q", dataset.ReadingsOfDriver)
}
