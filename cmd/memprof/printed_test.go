package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// nasty is what a terminal, a CI's runner or a reader would obey or misread: colours, a title, the
// clipboard (OSC 52), C1's CSI, marks that reorder text, commands of GitHub and of Azure.
const nasty = "\x1b[31m\x1b]0;t\x07\x1b]52;c;cm0gLXJm\x07\u009b2J\u202egnp\u2028\x7f\r\n::error::forged\n::set-output name=x::y%0A::warning::z\n##[error]old ##vso[task.complete]\tend\xff"

// nastyRun writes a recording all of whose texts are nasty, the names of processes as given.
func nastyRun(t testing.TB, dir, process string) {
	t.Helper()
	exit := 0
	info := &dataset.Info{
		ID: nasty, Version: nasty, Command: []string{nasty, nasty}, Host: nasty, OS: nasty, Kernel: nasty,
		GPUs:       []dataset.GPU{{Name: nasty, UUID: nasty, Memory: 80 << 30, Driver: nasty}},
		Frameworks: []string{nasty}, Options: map[string]string{nasty: nasty, "readings": nasty}, ExitStatus: &exit, Problems: []string{nasty},
	}
	assert.NoError(t, dataset.WriteInfo(dir, info))
	// What JSON gives back has no bytes that are not UTF-8.
	info, err := dataset.ReadInfo(dir)
	assert.NoError(t, err)
	w := dataset.NewWriter(dir, dataset.ProcessMeta{
		RunID: info.ID, Name: "rank0", Spool: info.ID, PID: 7, Rank: 0, LocalRank: 0, WorldSize: 1, Command: info.ID, Frameworks: info.ID,
	}, dataset.WriterOptions{})
	mixed := tracetest.Mixed()
	ids := make([]int32, len(mixed.Texts))
	for i, text := range mixed.Texts {
		ids[i] = w.Intern(strings.ReplaceAll(text, "NAME", nasty))
	}
	for i, e := range mixed.Events {
		e.Seq, e.Context = int64(i), ids[e.Context]
		assert.NoError(t, w.Append(&e))
	}
	assert.NoError(t, w.Finish(dataset.Ending{State: dataset.StateKilled, Reason: info.ID, Lost: 1, Problems: []string{"one", "two"}}))
	if process != "rank0" {
		rename(t, filepath.Join(dir, "rank0-0000.parquet"), process)
	}
}

// rename gives the process of a part another name in the part's metadata.
func rename(t testing.TB, part, name string) {
	t.Helper()
	whole, err := os.ReadFile(part)
	assert.NoError(t, err)
	before, footer, err := tracetest.Footer(whole)
	assert.NoError(t, err)
	old := []byte("memprof.process\x18\x05rank0")
	assert.Must(t, bytes.Count(footer, old) == 1, "the process's name is not found in the footer")
	named := append(binary.AppendUvarint([]byte("memprof.process\x18"), uint64(len(name))), name...)
	assert.NoError(t, os.WriteFile(part, tracetest.Sealed(before, bytes.Replace(footer, old, named, 1)), 0o644))
}

// ours are the lines that may begin as commands do: check's own annotations.
var ours = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^::(error|warning) (file=[^,:]*,line=\d+,)?title=[^:]*::expected [^:]`)
})

// packed is the data of a page, which diff --html does not print to a terminal: compressed, in 7 bits a character.
var packed = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)(<script type="application/octet-stream" id="\w+" data-bytes="\d+">).*?</script>`)
})

// demandPlain fails where text would steer a terminal or a CI.
func demandPlain(t testing.TB, what string, text []byte) {
	t.Helper()
	assert.That(t, utf8.Valid(text), "%s: not UTF-8: %q", what, text)
	text = packed().ReplaceAll(text, []byte("$1</script>"))
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		at := strings.IndexFunc(line, func(r rune) bool { return r != '\t' && r != ' ' && !unicode.IsPrint(r) })
		if at >= 0 {
			t.Errorf("%s: a raw %q in the line %q", what, []rune(line[at:])[0], line)
		}
		assert.That(t, !strings.HasPrefix(strings.TrimSpace(line), "::") || ours().MatchString(line), "%s: a command to the runner: %q", what, line)
		assert.That(t, !strings.Contains(line, "##[") && !strings.Contains(line, "##vso["), "%s: a command of the old form: %q", what, line)
	}
}

// TestPrintedText runs every verb over a recording whose texts are nasty, and beside it a gate file, a
// baseline and operations that are. Whatever they print, and whatever files for a CI they write, is plain.
func TestPrintedText(t *testing.T) {
	notShort(t)
	dir := t.TempDir()
	recording, other, bad := filepath.Join(dir, "run"), filepath.Join(dir, "other"), filepath.Join(dir, "bad")
	for path, name := range map[string]string{recording: "rank0", other: "rank0", bad: nasty} {
		assert.NoError(t, os.Mkdir(path, 0o755))
		nastyRun(t, path, name)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		assert.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	gates := write("gates.yaml", fmt.Sprintf("gates:\n  - gate: %q\n", strings.ToValidUTF8(nasty, "")))
	plainGates := write("plain.yaml", "gates:\n  - 'reserved.peak < 1B'\n  - 'requested.peak{job=*} < 1B'\n")
	baseline := write("baseline.json", "{\"version\": 1, \"values\": [{\"metric\": \""+nasty+"\"}]}")
	operations := write("nasty.ops", "alloc "+nasty+" 5\n")
	ranOut := write("ran-out.log", nasty+"\nCUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.10 GiB reserved)"+nasty)
	html, plots := filepath.Join(dir, "page.html"), filepath.Join(dir, "plots")
	ci := func(name string) string { return filepath.Join(dir, "ci-"+name) }
	missing := filepath.Join(dir, nasty)
	try := func(command []string, least, most int) {
		var stdout, stderr bytes.Buffer
		code := run(&stdout, &stderr, command)
		what := fmt.Sprintf("%.60q exits %d", command, code)
		assert.That(t, code >= least && code <= most, "%s, want %d to %d\n%.1000s", what, least, most, stderr.Bytes())
		demandPlain(t, what+": stderr", stderr.Bytes())
		demandPlain(t, what+": stdout", stdout.Bytes())
	}
	for _, command := range [][]string{
		{"verify", recording}, {"verify", "--json", recording},
		{"report", "--plots", plots, recording}, {"report", "--markdown", recording}, {"report", "--json", recording},
		{"report", "--html", "-o", html, recording}, {"report", "--at", "40", recording}, {"report", "--at", "40", "--markdown", recording},
		{"report", "--at", "40", "--json", recording}, {"report", "--table", "paper", recording},
		{"diff", recording, other}, {"diff", "--markdown", recording, other}, {"diff", "--json", recording, other},
		{"check", recording, "--config", plainGates}, {"check", recording, "--config", plainGates, "--json"},
		{"check", recording, "--config", plainGates, "--annotations", "--junit", ci("junit.xml"), "--markdown", ci("summary.md")},
		{"fit", recording}, {"fit", "--json", "--card", "1MiB", recording}, {"fit", "--all", recording}, {"fit", "--markdown", recording},
		{"top", "--once", recording}, {"top", "--once", "--json", recording},
		{"record", "--finish", recording},
		{"explain", ranOut}, {"explain", "--json", ranOut},
		{"export", "torch-snapshot", "-o", filepath.Join(dir, "snapshot"), recording},
	} {
		try(command, exit.Fine, exit.Violated)
	}
	for _, command := range [][]string{
		{"verify", bad}, {"verify", missing}, {"report", bad}, {"diff", recording, bad}, {"lab", "rerun", bad}, {"export", "torch-snapshot", bad},
		{"check", bad, "--config", plainGates, "--annotations"}, {"check", recording, "--config", gates}, {"check", recording, "--gate", nasty},
		{"check", recording, "--gate", "reserved.peak{phase=" + nasty + "} < 1B"},
		{"check", recording, "--gate", "reserved.peak < baseline + 2%", "--baseline", baseline},
		{"fit", bad}, {"fit", "--card", "nothing", recording}, {"fit", "--engine=" + nasty, recording}, {"fit", "--process", nasty, recording}, {"top", "--once", bad}, {"record", "--finish", missing},
		{"explain", operations}, {"explain", missing}, {"explain", missing, missing},
		{"lab", "replay", "--ops", operations, "--limit", "1GiB"}, {"lab", "replay", "--ops", missing, "--limit", "1GiB"},
		{"kv", "--model", nasty}, {"export", "csv", "--process", nasty, recording}, {nasty}, {"report", "--" + nasty},
	} {
		try(command, exit.Usage, exit.Usage)
	}
	for _, name := range []string{"junit.xml", "summary.md"} {
		text, err := os.ReadFile(ci(name))
		if err != nil {
			t.Error(err)
		}
		demandPlain(t, name, text)
	}
}

// TestProcessNames: a part that names its process as a way to another directory is refused.
func TestProcessNames(t *testing.T) {
	for _, name := range []string{"../../evil", "a/b", "..", ".hidden", "", "a b", "a\nb", strings.Repeat("x", 129)} {
		dir := t.TempDir()
		events, texts := tracetest.Training(10)
		tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts})
		rename(t, filepath.Join(dir, "rank0-0000.parquet"), name)
		var stdout, stderr bytes.Buffer
		code := run(&stdout, &stderr, []string{"report", dir})
		assert.That(t, code == exit.Usage && strings.Contains(stderr.String(), "its process is named "), "%q: exit code %d\n%s", name, code, stderr.Bytes())
	}
}

// full is standard output on a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestExportFailsOnce: an export that cannot be written says so once, though all that follows fails as well.
func TestExportFailsOnce(t *testing.T) {
	for _, format := range []string{"csv", "pprof"} {
		var stderr bytes.Buffer
		assert.Equal(t, run(full{}, &stderr, []string{"export", format, "../../samples/alexnet"}), exit.Failed, "%s: exit code", format)
		assert.Equal(t, stderr.String(), "memprof: no space left on device\n", "%s", format)
	}
}
