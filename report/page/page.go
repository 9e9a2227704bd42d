package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
)

//go:embed html/*.css html/*.js html/parts/*.js
var pageFiles embed.FS

// Page is what [HTML] draws.
type Page struct {
	// Results are of analysis.Run with Options.Explore; without it the page has no pins, and what
	// holds memory is told in tables of the peak instant only.
	Results []*analysis.Result
	// Used is what was read of a device's used memory while the job ran, by all who used it.
	Used map[*analysis.DeviceResult]analysis.Course
	// Path names what the page is of, and the recording in the commands that the page offers,
	// unless Paths has another for a result.
	Path  string
	Paths map[*analysis.Result]string
	// Ranks compares the processes, nil where there is one. Sections are those of the text report on a device.
	Ranks    *layout.Section
	Sections func(d *analysis.DeviceResult) []layout.Section
	// Subjects are data of a device for the page's scripts, by name: any value that JSON can hold.
	Subjects func(d *analysis.DeviceResult) map[string]any
	// MaxBytes bounds the page by giving up keyframes, never what makes up the other parts; 3 MB if it is 0.
	MaxBytes int
}

const defaultPageBytes = 3_000_000

// fewestFrames is how many keyframes of a device are kept for want of room, and the essential ones.
const fewestFrames = 32

// writePage writes the page of a recording. Names from the job reach it as data, and it shows them as
// text. What it may load or run is told to the browser in a policy: the script and the style with
// these hashes. It fails only where w does.
func Write(w io.Writer, p Page) error {
	limit := p.MaxBytes
	if limit == 0 {
		limit = defaultPageBytes
	}
	b := newPageBuilder(&p)
	for {
		page, err := renderPage("memprof report", "report", b.build())
		if err != nil {
			return err
		}
		if len(page) <= limit || !b.thin() {
			_, err = w.Write(page)
			return err
		}
	}
}

// scripts are the files of each page's script, in their order: a file may use those before it when it
// is loaded, and any other when a function of it is called. "parts" stands for all files in html/parts.
var scripts = map[string][]string{
	"report": {
		"format", "data", "page", "table", "sections", "chart", "levels", "scene", "overview", "timeline", "space", "parts", "device", "report",
	},
	"diff": {"format", "data", "page", "table", "sections", "diff"},
}

// script joins the files of a page's script, which share one scope, so that the page's security policy
// can name the script by one hash.
func script(page string) (string, error) {
	var out strings.Builder
	out.WriteString("(() => {\n'use strict';\n")
	for _, name := range scripts[page] {
		files := []string{"html/" + name + ".js"}
		if name == "parts" {
			var err error
			if files, err = fs.Glob(pageFiles, "html/parts/*.js"); err != nil {
				return "", err
			}
		}
		for _, file := range files {
			part, err := pageFiles.ReadFile(file)
			if err != nil {
				return "", err
			}
			out.Write(part)
		}
	}
	out.WriteString("})();\n")
	return out.String(), nil
}

// renderPage puts a page together; data is what finish of a pack returned.
func renderPage(title, page string, data []byte) ([]byte, error) {
	code, err := script(page)
	if err != nil {
		return nil, err
	}
	style, err := fs.ReadFile(pageFiles, "html/style.css")
	if err != nil {
		return nil, err
	}
	if strings.Contains(code, "</script") || bytes.Contains(style, []byte("</style")) {
		return nil, errors.New("the page's script or style ends its own element")
	}
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src %s; style-src %s; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>%s</title>
<style>%s</style>
</head>
<body>
<noscript>This page draws with JavaScript, which is off. It loads nothing from anywhere.</noscript>
<main id="page" aria-busy="true"></main>
<script type="application/octet-stream" id="data">`, hash(code), hash(string(style)), html.EscapeString(title), style)
	encoder := base64.NewEncoder(base64.StdEncoding, &out)
	if _, err := encoder.Write(data); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, "</script>\n<script>%s</script>\n</body>\n</html>\n", code)
	return out.Bytes(), nil
}
