package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// webPage is the page of make web, without a network, on which tests drop files.
type webPage struct {
	*reporttest.Browser
	saved string // the folder of what is saved
}

// openWeb makes the page and opens it from disk.
func openWeb(t *testing.T) *webPage {
	t.Helper()
	w := &webPage{reporttest.NewBrowser(t), t.TempDir()}
	folder := t.TempDir()
	out, err := exec.Command("make", "-s", "-C", "../..", "web", "WEB="+folder, "VERSION="+version).CombinedOutput()
	assert.Must(t, err == nil, "make web: %v\n%s", err, out)
	stat, err := os.Stat(filepath.Join(folder, "index.html"))
	assert.NoError(t, err)
	assert.That(t, stat.Size() <= 16_000_000, "the page has %d bytes, at most 12 MB of gzip in base64 may be", stat.Size())
	w.Must("Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}, nil)
	w.Must("Page.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": w.saved}, nil)
	w.Visit("file://" + filepath.Join(folder, "index.html"))
	return w
}

// drop drops files or a folder on the page, and returns the exit code, the first screen and the message that it shows then.
func (w *webPage) drop(t *testing.T, paths ...string) (code, screen, message string) {
	t.Helper()
	w.start(paths...)
	return w.answer(t)
}

// start drops files or a folder.
func (w *webPage) start(paths ...string) {
	w.Eval(`document.body.dataset.code = ''`)
	for _, event := range []string{"dragEnter", "dragOver", "drop"} {
		w.Must("Input.dispatchDragEvent", map[string]any{
			"type": event, "x": 300, "y": 100, "data": map[string]any{"items": []any{}, "files": paths, "dragOperationsMask": 1},
		}, nil)
	}
}

// choose gives a file or a folder to an input of the page, as its dialog does.
func (w *webPage) choose(id, path string) {
	var input struct {
		Result struct {
			Object string `json:"objectId"`
		} `json:"result"`
	}
	w.Eval(`document.body.dataset.code = ''`)
	w.Must("Runtime.evaluate", map[string]any{"expression": fmt.Sprintf("document.getElementById(%q)", id)}, &input)
	w.Must("DOM.setFileInputFiles", map[string]any{"files": []string{path}, "objectId": input.Result.Object}, nil)
}

const answered = `document.body.dataset.code !== '' && document.getElementById('page').getAttribute('aria-busy') === 'false'`

// answer waits for what the page answers.
func (w *webPage) answer(t *testing.T) (code, screen, message string) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if w.Eval(answered) == true {
			break
		}
		assert.Must(t, time.Since(begun) < 3*time.Minute, "no answer: %s", w.Text("#status"))
	}
	code, _ = w.Eval(`document.body.dataset.code`).(string)
	return code, w.Text("#screen"), w.Text("#errors")
}

// printedBy is what a command prints in a folder.
func printedBy(t *testing.T, folder string, args ...string) (code, out, message string) {
	t.Helper()
	t.Chdir(folder)
	var stdout, stderr bytes.Buffer
	return fmt.Sprint(run(&stdout, &stderr, args)), stdout.String(), stderr.String()
}

// webTexts are errors of explain's own tests.
var webTexts = []string{
	"torch-reserved-fragmentation", "torch21-fifteen-ranks-on-gpu-0", "sglang-not-enough", "jax-allocating", "tensorflow-dump-mnist", "nccl-enqueue",
}

var web = flag.Bool("web", false, "make the page of make web, and drop files on it")

// TestWeb drops files on the page, which says what the command line says, byte by byte.
func TestWeb(t *testing.T) {
	if !*web {
		t.Skip("without -web: memprof is not compiled for a browser, which takes a minute; make web-test does so")
	}
	w := openWeb(t)
	for _, name := range webTexts {
		t.Run(name, func(t *testing.T) { w.sameText(t, name) })
	}
	t.Run("hostile", w.refusesHostile)
	t.Run("folder", func(t *testing.T) {
		folder, err := filepath.Abs("../../samples/zoo")
		assert.NoError(t, err)
		_, want, _ := printedBy(t, folder, "report", "alexnet")
		_, screen, _ := w.drop(t, filepath.Join(folder, "alexnet"))
		assert.Diff(t, want, screen, "the first screen (-command line +page)")
		w.choose("folder", filepath.Join(folder, "alexnet"))
		_, screen, _ = w.answer(t)
		assert.Diff(t, want, screen, "the first screen of a folder that was chosen (-command line +page)")
	})
	snapshots, err := filepath.Glob("../../samples/snapshots/*.pickle.gz")
	assert.Must(t, err == nil && len(snapshots) == 6, "snapshots are %v", snapshots)
	for _, file := range snapshots {
		t.Run(filepath.Base(file), func(t *testing.T) { w.sameSnapshot(t, file) })
	}
	w.Quiet()
	t.Run("policy", func(t *testing.T) {
		broken := w.Eval(`new Promise((done) => {
			addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
			fetch('https://example.org/').catch(() => setTimeout(() => done('nothing'), 1000));
		})`)
		assert.Equal(t, broken, any("connect-src"), "a connection violates")
		w.Forget() // the browser reported that violation
	})
	w.EnterFrame()
	for begun := time.Now(); w.Eval(`document.querySelector('main').getAttribute('aria-busy')`) != "false"; time.Sleep(10 * time.Millisecond) {
		assert.Must(t, time.Since(begun) < time.Minute, "the page in the frame is not ready")
	}
	w.Says(t, "h1", filepath.Base(snapshots[5]))
	w.Quiet()
}

// refusesHostile drops what is no snapshot, or one that would take all memory: each ends in the message of the command line.
func (w *webPage) refusesHostile(t *testing.T) {
	whole, err := os.ReadFile("../../samples/snapshots/native.pickle.gz")
	assert.NoError(t, err)
	contents := map[string]string{
		"code.pickle":       "\x80\x02cos\nsystem\n(U\x04trueo.",
		"length.pickle":     "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
		"memo.pickle":       "\x80\x02}r\xff\xff\xff\xff.",
		"empty.pickle":      "",
		"garbage.pkl":       "no pickle",
		"cut.pickle.gz":     string(whole[:len(whole)/2]),
		"part.parquet":      "PAR1 and then nothing",
		"<b>.log":           "no error",
		"--html":            "no error",
		"changed.pickle.gz": strings.Replace(string(whole), string(whole[2000:2010]), "0123456789", 1),
	}
	if os.Getenv("MEMPROF_TEST_ALL") != "" {
		contents["marks.pickle"] = "\x80\x02" + strings.Repeat("(", 40_000_000)
	}
	for name, content := range contents {
		folder := t.TempDir()
		assert.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
		verb := []string{"import", "-o", t.TempDir(), "--", name}
		switch {
		case strings.HasPrefix(content, "PAR1"):
			verb = []string{"report", "--", name}
		case content == "no error":
			verb = []string{"explain", "--", name}
		}
		code, screen, message := w.drop(t, filepath.Join(folder, name))
		_, _, want := printedBy(t, folder, verb...)
		assert.That(t, code == "2" && screen == "" && message != "" && message == want,
			"%s: exit code %s, %q, message %q, want %q", name, code, screen, message, want)
	}
}

// sameSnapshot drops a snapshot, and saves the page.
func (w *webPage) sameSnapshot(t *testing.T, file string) {
	file, err := filepath.Abs(file)
	assert.NoError(t, err)
	code, screen, message := w.drop(t, file)
	wantCode, want, _ := printedBy(t, filepath.Dir(file), "report", filepath.Base(file))
	assert.Equal(t, code, wantCode, "exit code, with %q", message)
	assert.Diff(t, want, screen, "the first screen (-command line +page)")
	w.Eval(`document.getElementById('save').click()`)
	wantFile := filepath.Join(t.TempDir(), "report.html")
	printedBy(t, filepath.Dir(file), "report", "--html", "-o", wantFile, filepath.Base(file))
	wantPage, err := os.ReadFile(wantFile)
	assert.NoError(t, err)
	saved := filepath.Join(w.saved, "report.html")
	var page []byte
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		if page, err = os.ReadFile(saved); err == nil && len(page) >= len(wantPage) {
			break
		}
	}
	assert.That(t, bytes.Equal(page, wantPage), "the page has %d bytes, from the command line %d: %v", len(page), len(wantPage), err)
	os.Remove(saved)
}

// sameText drops a text, without the labels that it has in the tests of explain.
func (w *webPage) sameText(t *testing.T, name string) {
	data, err := os.ReadFile("../../analysis/oomtext/testdata/texts/" + name + ".txt")
	assert.NoError(t, err)
	_, text, _ := strings.Cut(string(data), "\n---\n")
	folder := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(folder, "train.log"), []byte(text), 0o600))
	wantCode, want, _ := printedBy(t, folder, "explain", "train.log")
	check := func(how string, code, screen, message string) {
		t.Helper()
		assert.That(t, code == wantCode && code == "0", "%s: exit code %s, want %s: %q", how, code, wantCode, message)
		assert.Diff(t, want, screen, how+": the answer (-command line +page)")
	}
	code, screen, message := w.drop(t, filepath.Join(folder, "train.log"))
	check("dropped", code, screen, message)
	w.choose("files", filepath.Join(folder, "train.log"))
	code, screen, message = w.answer(t)
	check("chosen", code, screen, message)
	w.Eval(`document.body.dataset.code = ''; document.getElementById('text').select()`)
	w.Must("Input.insertText", map[string]any{"text": text}, nil)
	for _, key := range []map[string]any{ // the button is the next that a keyboard reaches
		{"type": "keyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
		{"type": "keyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
	} {
		w.Must("Input.dispatchKeyEvent", key, nil)
	}
	code, screen, message = w.answer(t)
	check("pasted", code, screen, message)
}

var webFile = flag.String("web-file", "", "drop this file on the page, and print what that takes")

// TestWebFile measures a large file: go test ./cmd/memprof -run TestWebFile -web-file FILE. TestLarge of analysis/snapshot makes one of 1 GB.
func TestWebFile(t *testing.T) {
	if *webFile == "" {
		t.Skip("-web-file is not given")
	}
	w := openWeb(t)
	begun := time.Now()
	w.start(*webFile)
	most, screen := int64(0), ""
	for done := any(false); done != true; time.Sleep(200 * time.Millisecond) {
		done = w.Eval(answered)
		peak, processor := renderer(t)
		most = max(most, peak)
		took := fmt.Sprintf("%.1f s, %.1f s of processors", time.Since(begun).Seconds(), processor)
		if screen == "" && w.Eval(`!document.getElementById('screen').hidden`) == true {
			screen = took
		}
		if done == true {
			fmt.Printf("first screen after %s; all after %s; at most %d MiB in the renderer\n", screen, took, most>>10)
		}
	}
	code, _, message := w.answer(t)
	fmt.Println("exit code", code, message)
	w.Quiet()
}

// renderer is the most resident memory in KiB so far, which Chromium sets back now and then, and the seconds of processors of the
// process of pages that has most of it.
func renderer(t *testing.T) (peak int64, processor float64) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	assert.NoError(t, err)
	for _, folder := range folders {
		command, _ := os.ReadFile(filepath.Join(folder, "cmdline")) // the process may have ended
		if !bytes.Contains(command, []byte("--type=renderer")) {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(folder, "status"))
		stat, _ := os.ReadFile(filepath.Join(folder, "stat"))
		_, memory, _ := strings.Cut(string(status), "VmHWM:")
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		var kib int64
		var user, system float64
		if fmt.Sscan(memory, &kib); kib <= peak || len(fields) < 13 {
			continue
		}
		fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
		peak, processor = kib, (user+system)/100
	}
	return peak, processor
}
