// Package page makes the HTML pages of reports. A page loads nothing: its scripts and style stand in it and
// are named by their hashes in a security policy that forbids all else, and its data is compressed. The
// series of a device comes at several levels of detail; the address space and the live allocations at the
// keyframes of package analysis, which the page calls stored instants, and at every event of the spans that the
// analysis kept exactly. A click pins the event itself where it is in one, else the nearest stored instant. If a
// page would be too long, keyframes are left out, and the page says how many.
//
// The scripts are in html/: plain files that share one scope. Whatever comes from a recording reaches the
// page as data and is shown as text.
package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

//go:embed html/*.css html/*.js html/parts/*.js
var content embed.FS

// Page is the input of [Write].
type Page struct {
	// Results come from analysis.Run with Options.Explore. Without it the page has no stored instants, and
	// tables of live allocations are of the peak alone.
	Results []*analysis.Result
	// Used are the readings of a device's used memory, of all processes.
	Used map[*analysis.DeviceResult]accounting.Course
	// Title is the job and its date.
	Title string
	// Path is the recording in commands that the page shows, unless Paths has another for a result.
	Path  string
	Paths map[*analysis.Result]string
	// Ranks compares the devices, nil if there is one. Sections are the sections of the report on a device.
	Ranks    *layout.Section
	Sections func(d *analysis.DeviceResult) []layout.Section
	// First are a heading, whose notes say where the recording comes from, and the findings.
	First func(r *analysis.Result, d *analysis.DeviceResult) []layout.Section
	// Subjects are data of a device for the page's scripts, by name: any value that JSON can hold.
	Subjects func(d *analysis.DeviceResult) map[string]any
	// Server is set if a server answers the page: it has the exact events. nil stands for a page that loads nothing.
	Server *Server
	// MaxBytes limits the length of the page without its exact events: keyframes are left out, but nothing else. 0
	// stands for 3 MB.
	MaxBytes int
}

// Server is what the page knows of the server behind it.
type Server struct {
	Complete bool  `json:"complete"` // the recording was read; else the page asks until it was
	Events   int64 `json:"events"`   // read so far
	Of       int64 `json:"of"`
	Most     int64 `json:"most"` // events in one answer
}

const defaultBytes = 3_000_000

// fewestFrames is the number of keyframes of a device from which on no more are left out.
const fewestFrames = 32

// Write writes the page of a recording. It fails only if w does.
func Write(w io.Writer, p Page) error {
	limit := p.MaxBytes
	if limit == 0 {
		limit = defaultBytes
	}
	b := newBuilder(&p)
	data := b.build()
	for denseLen(len(data)) > limit-scriptBytes && b.thin() {
		data = b.build()
	}
	return renderPage(w, "report", cmp.Or(p.Title, "memprof report"), data, b.exactPack(), p.Server != nil)
}

// scriptBytes is at least what a page has beside its data.
const scriptBytes = 200_000

// scripts are the files of each page's script, in their order: a file may use those before it when it
// is loaded, and any other when a function of it is called. "parts" stands for all files in html/parts.
var scripts = map[string][]string{
	"report": {
		"format", "dense", "data", "page", "table", "sections", "chart", "levels", "scene", "overview", "timeline", "space", "exact", "pin", "parts", "device", "address",
		"report",
	},
	"diff": {"format", "dense", "data", "page", "table", "sections", "diff"},
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
			if files, err = fs.Glob(content, "html/parts/*.js"); err != nil {
				return "", err
			}
		}
		for _, file := range files {
			part, err := content.ReadFile(file)
			if err != nil {
				return "", err
			}
			out.Write(part)
		}
	}
	out.WriteString("})();\n")
	return ascii(out.String(), `\u%04x`), nil
}

// ascii is code with an escape for each other character, so that the code of a page that a program has taken for text of
// another encoding is still what the page's policy names, and can say so. The code has such characters only in texts.
func ascii(code, escape string) string {
	var out strings.Builder
	for _, c := range code {
		if c < utf8.RuneSelf {
			out.WriteRune(c)
		} else {
			fmt.Fprintf(&out, escape, c)
		}
	}
	return out.String()
}

// renderPage writes script, style and data as one page with a title. Data and events are results of pack.finish; events may be nil. A
// page that is served may ask its server.
func renderPage(w io.Writer, page, title string, data, events []byte, served bool) error {
	code, err := script(page)
	if err != nil {
		return err
	}
	sheet, err := fs.ReadFile(content, "html/style.css")
	if err != nil {
		return err
	}
	style := ascii(string(sheet), `\%06x `)
	if strings.Contains(code, "</script") || strings.Contains(style, "</style") {
		return errors.New("the page's script or style ends its own element")
	}
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	connect := ""
	if served {
		connect = "connect-src 'self'; "
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src %s; style-src %s; img-src data:; %sbase-uri 'none'; form-action 'none'">
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
`, hash(code), hash(style), connect, html.EscapeString(plain.Text(title)), style)
	out.WriteString(denseElement("data", data))
	if events != nil {
		out.WriteString("\n" + denseElement("events", events))
	}
	fmt.Fprintf(&out, "\n<script>%s</script>\n</body>\n</html>\n", code)
	_, err = w.Write(out.Bytes())
	return err
}
