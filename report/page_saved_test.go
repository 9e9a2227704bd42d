package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A page shows the same after a browser saved it, or a program ended its lines with \r\n; and one that a program took for
// text of another encoding, or cut, says so.
func TestPageSavedAndAltered(t *testing.T) {
	html := exactPage(t, mixedJob(t, 400).Events, func(int32) string { return "" })
	b := reporttest.NewBrowser(t)
	const saved = `'<!doctype html>' + document.documentElement.outerHTML`
	b.Open(html)
	waitForEvents(b)
	again, _ := b.Eval(saved).(string)
	for name, html := range map[string][]byte{
		"as written":         html,
		"saved by a browser": []byte(again),
		"with \\r\\n":        bytes.ReplaceAll(html, []byte("\n"), []byte("\r\n")),
	} {
		b.Open(html)
		waitForEvents(b)
		b.Eval(`location.hash = '#event=300'`)
		waitForPin(b, 300)
		got := b.Text(".pin strong")
		assert.That(t, strings.Contains(got, "event 300 "), "%s: pinned is %q, want event 300", name, got)
		n, _ := b.Eval(`document.querySelectorAll('header.top').length`).(float64)
		assert.That(t, n == 1, "%s: %v headers, want 1", name, n)
		if name != "saved by a browser" { // whose style attributes, which the script replaces, the page's policy refuses
			b.Quiet()
		}
	}
	var latin []byte // each byte a character
	for _, c := range html {
		latin = utf8.AppendRune(latin, rune(c))
	}
	cut := bytes.LastIndex(html, []byte("</script>\n<script>"))
	var diff bytes.Buffer
	assert.NoError(t, page.WriteDiff(&diff, "a -> b", layout.Section{Title: "Compared"}, nil, nil))
	at := bytes.Index(diff.Bytes(), []byte(`data-bytes="`)) + len(`data-bytes="1">`)
	for name, c := range map[string]struct {
		html []byte
		says string
	}{
		"in another encoding": {latin, "the page was altered"},
		"events cut":          {append(append([]byte{}, html[:cut-9]...), html[cut:]...), "the page was altered"},
		"a bit changed":       {append(append(append([]byte{}, html[:cut-9]...), html[cut-9]^1), html[cut-8:]...), "the page was altered"},
		"of a diff, cut":      {append(append([]byte{}, diff.Bytes()[:at+9]...), diff.Bytes()[at+19:]...), "the page was altered"},
	} {
		b.Open(c.html)
		b.Eval(`new Promise((done) => { const look = () => document.querySelector('.banner[role=alert]') ? done('') : setTimeout(look, 10); look(); })`)
		got := b.Text(".banner[role=alert]")
		assert.That(t, strings.Contains(got, c.says), "%s: the page says %q, want %q", name, got, c.says)
	}
}
