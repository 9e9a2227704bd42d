package reporttest

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Browser is a headless Chromium, spoken to by the DevTools protocol over its pipe: JSON messages that end
// with a zero byte, to its file 3 and from its file 4. The tests of a package, of which one runs at a time, share
// one; each has a page and storage of its own.
type Browser struct {
	t   testing.TB
	cmd *exec.Cmd
	to  *os.File
	// profile is its folder.
	profile string

	mutex sync.Mutex
	next  int
	wait  map[int]chan reply

	attached string   // names the page in calls about it
	problems []string // what the page complained of
	requests []string // what it asked for beside itself
	loaded   chan struct{}
}

// longest is how long the browser may take for anything: nobody waits for it but where it is gone.
const longest = 3 * time.Minute

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

type devtoolsMessage struct {
	reply
	ID       int             `json:"id"`
	Method   string          `json:"method"`
	Params   json.RawMessage `json:"params"`
	Attached string          `json:"sessionId"`
}

var (
	shared    *Browser // nil until a test needs it
	noBrowser string   // why there is none
)

// Main runs the tests of a package, for its TestMain, and ends the browser that they shared.
func Main(m *testing.M) {
	code := m.Run()
	Quit()
	os.Exit(code)
}

// Quit ends the browser that tests shared, where [Main] does not.
func Quit() {
	if shared != nil {
		shared.quit()
	}
}

// NewBrowser is the package's browser with a new page, or skips the test where there is none.
func NewBrowser(t testing.TB) *Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("no browser in short tests")
	}
	if shared == nil && noBrowser == "" {
		start(t)
	}
	if noBrowser != "" {
		t.Skip(noBrowser)
	}
	shared.t = t
	shared.attach()
	return shared
}

func start(t testing.TB) {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		noBrowser = "no Chromium on this machine: the page is not looked at"
		return
	}
	theirs, ours, err := pipes()
	assert.NoError(t, err)
	profile, err := os.MkdirTemp("", "memprof-browser-")
	assert.NoError(t, err)
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
		"--disable-extensions", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
		"--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = theirs[:]
	if err := cmd.Start(); err != nil {
		noBrowser = fmt.Sprintf("%s does not start: %v", path, err)
		os.RemoveAll(profile)
		return
	}
	for _, f := range theirs {
		f.Close()
	}
	shared = &Browser{cmd: cmd, profile: profile, to: ours[0], wait: map[int]chan reply{}}
	go shared.listen(ours[1])
}

func (b *Browser) quit() {
	_ = b.send("", "Browser.close", nil, nil) // it may be gone before it answers
	b.to.Close()
	overdue := time.AfterFunc(longest, func() { _ = b.cmd.Process.Kill() })
	_ = b.cmd.Wait()
	overdue.Stop()
	os.RemoveAll(b.profile)
}

// pipes are the browser's ends, reading first, and ours, writing first.
func pipes() (theirs, ours [2]*os.File, err error) {
	if theirs[0], ours[0], err = os.Pipe(); err != nil {
		return theirs, ours, err
	}
	ours[1], theirs[1], err = os.Pipe()
	return theirs, ours, err
}

func (b *Browser) listen(from *os.File) {
	defer from.Close()
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.mutex.Lock()
			for id, ch := range b.wait {
				close(ch)
				delete(b.wait, id)
			}
			b.mutex.Unlock()
			return
		}
		var m devtoolsMessage
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mutex.Lock()
		if ch := b.wait[m.ID]; m.ID != 0 && ch != nil {
			ch <- m.reply
			delete(b.wait, m.ID)
		}
		if m.Attached == b.attached { // a page that is closed has nothing more to say
			b.event(&m)
		}
		b.mutex.Unlock()
	}
}

// event takes note of what the page does.
func (b *Browser) event(m *devtoolsMessage) {
	var p struct {
		Type    string `json:"type"`
		Args    []any  `json:"args"`
		Details struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
		Entry struct {
			Level string `json:"level"`
			Text  string `json:"text"`
		} `json:"entry"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
	}
	_ = json.Unmarshal(m.Params, &p) // of events that are looked at it fits
	switch m.Method {
	case "Page.loadEventFired":
		b.loaded <- struct{}{}
	case "Runtime.exceptionThrown":
		b.problems = append(b.problems, p.Details.Text+" "+p.Details.Exception.Description)
	case "Runtime.consoleAPICalled":
		if p.Type == "error" || p.Type == "warning" || p.Type == "assert" {
			b.problems = append(b.problems, fmt.Sprint("console ", p.Type, ": ", p.Args))
		}
	case "Log.entryAdded":
		if p.Entry.Level == "error" || p.Entry.Level == "warning" {
			b.problems = append(b.problems, p.Entry.Text)
		}
	case "Network.requestWillBeSent":
		b.requests = append(b.requests, p.Request.URL)
	}
}

var errGone = errors.New("the browser is gone")

// send calls a method and waits for its result.
func (b *Browser) send(attached, method string, params, result any) error {
	b.mutex.Lock()
	b.next++
	id := b.next
	ch := make(chan reply, 1)
	b.wait[id] = ch
	b.mutex.Unlock()
	text, err := json.Marshal(struct {
		ID       int    `json:"id"`
		Method   string `json:"method"`
		Params   any    `json:"params,omitempty"`
		Attached string `json:"sessionId,omitempty"`
	}{id, method, params, attached})
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case r, ok := <-ch:
		switch {
		case !ok:
			return errGone
		case r.Error != nil:
			return errors.New(method + ": " + r.Error.Message)
		case result != nil:
			return json.Unmarshal(r.Result, result)
		}
		return nil
	case <-time.After(longest):
		return errors.New(method + " is not answered")
	}
}

func (b *Browser) Must(method string, params, result any) {
	b.t.Helper()
	if err := b.send(b.attached, method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// show takes what is said from now on for what that page says.
func (b *Browser) show(page string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.attached, b.loaded = page, make(chan struct{}, 8)
}

// attach opens a page, in a context without anything of earlier ones, which is closed when the test ends.
func (b *Browser) attach() {
	var answer struct {
		Context string `json:"browserContextId"`
		Target  string `json:"targetId"`
	}
	b.show("")
	b.Must("Target.createBrowserContext", nil, &answer)
	b.Must("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": answer.Context}, &answer)
	b.attachTo(answer.Target)
	b.t.Cleanup(func() {
		_ = b.send("", "Target.disposeBrowserContext", map[string]any{"browserContextId": answer.Context}, nil)
	})
	b.size(1360, 900)
}

// attachTo asks a page or frame from now on, which tells what it does.
func (b *Browser) attachTo(target string) {
	b.t.Helper()
	var answer struct {
		Attached string `json:"sessionId"`
	}
	b.Must("Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &answer)
	b.show(answer.Attached)
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.Must(domain+".enable", nil, nil)
	}
}

// EnterFrame makes the frame in the page, which Chromium keeps in another process, the one that is asked from now on.
func (b *Browser) EnterFrame() {
	b.t.Helper()
	var all struct {
		Targets []struct {
			Type string `json:"type"`
			ID   string `json:"targetId"`
		} `json:"targetInfos"`
	}
	b.Must("Target.getTargets", nil, &all)
	for _, target := range all.Targets {
		if target.Type == "iframe" {
			b.attachTo(target.ID)
			return
		}
	}
	b.t.Fatal("the page has no frame of its own process")
}

func (b *Browser) size(width, height int) {
	b.Must("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Open shows a page from disk, and says how long it took until it was ready to be used.
func (b *Browser) Open(page []byte) time.Duration {
	b.t.Helper()
	file := filepath.Join(b.t.TempDir(), "page.html")
	if err := os.WriteFile(file, page, 0o644); err != nil {
		b.t.Fatal(err)
	}
	return b.Visit("file://" + file)
}

// Visit shows the page of an address, and says how long it took until it was ready to be used.
func (b *Browser) Visit(address string) time.Duration {
	b.t.Helper()
	b.mutex.Lock()
	b.problems, b.requests = nil, nil
	b.mutex.Unlock()
	start := time.Now()
	b.Must("Page.navigate", map[string]any{"url": address}, nil)
	select {
	case <-b.loaded:
	case <-time.After(longest):
		b.t.Fatal("the page does not load")
	}
	for b.Eval(`(document.querySelector('main') || document.createElement('main')).getAttribute('aria-busy')`) != "false" {
		if time.Since(start) > longest {
			b.t.Fatalf("the page is not ready: %v", b.problems)
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.Eval(TwoFrames)
	return time.Since(start)
}

// TwoFrames is over when all that was to be drawn is.
const TwoFrames = `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(''))))`

// Eval is the value of an expression in the page; promises are waited for.
func (b *Browser) Eval(expression string) any {
	b.t.Helper()
	var out struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		Details *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.Must("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.Details != nil {
		b.t.Fatalf("%s: %s %s", expression, out.Details.Text, out.Details.Exception.Description)
	}
	return out.Result.Value
}

// Text is what an element of the page says.
func (b *Browser) Text(selector string) string {
	b.t.Helper()
	text, _ := b.Eval(fmt.Sprintf(`(document.querySelector(%q) || {}).textContent`, selector)).(string)
	return text
}

// Says fails the test unless an element of the page says each of these texts.
func (b *Browser) Says(t testing.TB, selector string, texts ...string) {
	t.Helper()
	said := b.Text(selector)
	for _, text := range texts {
		assert.That(t, strings.Contains(said, text), "%s says %q, want %q", selector, said, text)
	}
}

// Mouse does something at a place of an element, as shares of its width and height.
func (b *Browser) Mouse(selector, what string, x, y float64, more map[string]any) {
	b.t.Helper()
	at, _ := b.Eval(fmt.Sprintf(`(() => {
		const node = document.querySelector(%q);
		const box = node.getBoundingClientRect();
		if (box.top < 0 || box.bottom > innerHeight) node.scrollIntoView({ block: 'center' });
		const { left, top, width, height } = node.getBoundingClientRect();
		return [left + width * %f, top + height * %f];
	})()`, selector, x, y)).([]any)
	if len(at) != 2 {
		b.t.Fatalf("no element %s", selector)
	}
	params := map[string]any{"type": what, "x": at[0], "y": at[1]}
	for key, value := range more {
		params[key] = value
	}
	b.Must("Input.dispatchMouseEvent", params, nil)
}

func (b *Browser) Click(selector string, x, y float64) {
	b.t.Helper()
	b.Mouse(selector, "mouseMoved", x, y, nil)
	for _, what := range []string{"mousePressed", "mouseReleased"} {
		b.Mouse(selector, what, x, y, map[string]any{"button": "left", "buttons": 1, "clickCount": 1})
	}
	b.Eval(TwoFrames)
}

// Quiet fails the test if the page complained, or asked for anything.
func (b *Browser) Quiet() { b.QuietAt("file:") }

// QuietAt is Quiet for a page that may ask its own address.
func (b *Browser) QuietAt(own string) {
	b.t.Helper()
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, problem := range b.problems {
		b.t.Errorf("the page complains: %s", problem)
	}
	for _, url := range b.requests {
		if len(url) < 5 || !strings.HasPrefix(url, own) && url[:5] != "data:" && url[:5] != "blob:" && url[:5] != "about" {
			b.t.Errorf("the page asked for %s", url)
		}
	}
}

// Picture writes what the whole page looks like.
func (b *Browser) Picture(file string, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.Must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	height, _ := b.Eval(`document.documentElement.scrollHeight`).(float64)
	b.size(1360, int(height))
	b.Eval(TwoFrames)
	var out struct {
		Data string `json:"data"`
	}
	b.Must("Page.captureScreenshot", map[string]any{"format": "png"}, &out)
	b.size(1360, 900)
	png, err := base64.StdEncoding.DecodeString(out.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// Forget drops what the page complained of so far.
func (b *Browser) Forget() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.problems = nil
}
