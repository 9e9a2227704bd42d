package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"github.com/memprof/memprof/analysis/plain"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// goldenFixtures are the fixtures, and one for each subject that these lack.
func goldenFixtures(t *testing.T) []fixture {
	graphs := graphsResults()
	graphs[0].Devices[0].Graphs.Stores = graphs[0].Devices[0].Graphs.Stores[:2]
	return append(fixtures(),
		fixture{"graphs", graphs},
		fixture{"accounting", accountingResults()},
		fixture{"leaking", []*analysis.Result{leaking()}},
		fixture{"native", []*analysis.Result{nativeResult(8 << 20), nativeResult(-1)}},
		fixture{"kv", []*analysis.Result{recordedServer(t)}})
}

// goldens gather what the golden files of subjects hold, by the name of the file. So a row that one subject gets changes
// the files of that subject only, and not those of all recordings.
type goldens struct {
	files map[string]*bytes.Buffer
	seen  map[string]bool
}

// add appends what a fixture has to a file, once: fixtures share results.
func (g *goldens) add(file, fixture, text string) {
	if g.seen[file+"\n"+text] || text == "" {
		return
	}
	g.seen[file+"\n"+text] = true
	if g.files[file] == nil {
		g.files[file] = &bytes.Buffer{}
	}
	fmt.Fprintf(g.files[file], "== %s ==\n%s", fixture, text)
}

func (g *goldens) compare(t *testing.T) {
	for name, text := range g.files {
		reporttest.Golden(t, "sections/"+name, text.Bytes())
	}
}

func sectionText(t *testing.T, width int, sections ...layout.Section) string {
	t.Helper()
	var out bytes.Buffer
	assert.NoError(t, layout.WriteText(&out, layout.Options{Width: width}, sections...))
	return out.String()
}

func sectionMarkdown(t *testing.T, sections ...layout.Section) string {
	t.Helper()
	var out bytes.Buffer
	assert.NoError(t, layout.WriteMarkdown(&out, sections...))
	return out.String()
}

// portion is a golden file's share of the report on a device, and the sections that it holds.
type portion struct {
	name     string
	sections []layout.Section
}

func partsOf(r *analysis.Result, d *analysis.DeviceResult) []portion {
	parts := []portion{{"screen", screenOf(r, d, ScreenColumns)}}
	if empty(d) {
		parts = []portion{{"screen", namedSections(d, func(string) bool { return false })}}
	}
	for _, s := range subjects {
		if s.sections != nil && (s.unused || !empty(d)) {
			parts = append(parts, portion{s.name, s.sections(d)})
		}
	}
	return parts
}

// Each subject's sections on all fixtures are as its golden file says, and the whole report on a device has them in order.
func TestSubjectGoldens(t *testing.T) {
	g := &goldens{map[string]*bytes.Buffer{}, map[string]bool{}}
	for _, f := range goldenFixtures(t) {
		heads := reportSections(f.results, Scope{Sections: []string{"none"}}, ScreenColumns)
		g.add("headings.txt", f.name, sectionText(t, 0, heads...))
		g.add("headings.txt", f.name+", Markdown", sectionMarkdown(t, heads...))
		rest := renderText(t, f.results, layout.Options{})
		for _, r := range f.results {
			for i := range r.Devices {
				for _, p := range partsOf(r, &r.Devices[i]) {
					if len(p.sections) == 0 {
						continue
					}
					file := p.name + ".txt"
					text := sectionText(t, 0, p.sections...)
					_, after, found := strings.Cut(rest, text)
					assert.Must(t, found, "%s: the report lacks, after what comes before it,\n%s", f.name, text)
					rest = after
					first := g.files[file] == nil
					g.add(file, f.name, text)
					if first || strings.HasPrefix(f.name, "hostile") {
						g.add(file, f.name+", 80 columns", sectionText(t, 80, p.sections...))
						g.add(file, f.name+", Markdown", sectionMarkdown(t, p.sections...))
					}
				}
			}
		}
		if rest = strings.TrimSpace(rest); rest != "" && !strings.HasSuffix(rest, "no memory of any device was used") {
			t.Errorf("%s: the report has more:\n%s", f.name, rest)
		}
	}
	g.compare(t)
}

// exact are the fixtures whose JSON the golden files hold; that of the others is long, and has nothing else.
var exact = []string{"short", "hostile", "paused", "one_event", "no_allocations", "no_devices", "nothing", "graphs", "accounting", "leaking", "native", "kv"}

// Each subject's fields of a device's JSON are as its golden file says: by fixture, or the name of a
// fixture that has the same.
func TestJSONGoldens(t *testing.T) {
	processes := map[string]any{}
	files, seen := map[string]map[string]any{"processes": processes}, map[string]string{}
	add := func(file, fixture string, value any) {
		if files[file] == nil {
			files[file] = map[string]any{}
		}
		key := file + string(marshalled(t, value))
		if first, ok := seen[key]; ok {
			value = first
		} else {
			seen[key] = fixture
		}
		files[file][fixture] = value
	}
	for _, f := range goldenFixtures(t) {
		if !slices.Contains(exact, f.name) {
			continue
		}
		document := jsonOf(t, f.results)
		for at, process := range document["processes"].([]any) {
			process := process.(map[string]any)
			for i, device := range process["devices"].([]any) {
				name := fmt.Sprintf("%s %d.%d", f.name, at, i)
				for file, fields := range jsonParts(device.(map[string]any)) {
					add(file, name, fields)
				}
			}
			delete(process, "devices")
		}
		processes[f.name] = document
	}
	for file, fixtures := range files {
		reporttest.Golden(t, "json/"+file+".json", marshalled(t, fixtures))
	}
}

func marshalled(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.MarshalIndent(value, "", " ")
	assert.NoError(t, err)
	return append(text, '\n')
}

// jsonOf is a report in JSON, with numbers as they are written.
func jsonOf(t *testing.T, results []*analysis.Result) map[string]any {
	t.Helper()
	var out bytes.Buffer
	assert.NoError(t, JSON(&out, results, Scope{}))
	var document map[string]any
	decoder := json.NewDecoder(&out)
	decoder.UseNumber()
	assert.NoError(t, decoder.Decode(&document))
	return document
}

// jsonParts divides the fields of a device by the subject whose struct has them, or is them; those of no subject are
// of "device".
func jsonParts(device map[string]any) map[string]map[string]any {
	parts := map[string]map[string]any{}
	var divide func(file string, of reflect.Type)
	divide = func(file string, of reflect.Type) {
		for i := range of.NumField() {
			field := of.Field(i)
			if field.Anonymous {
				divide(strings.ToLower(strings.TrimPrefix(field.Name, "json")), field.Type)
				continue
			}
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			to := file
			if kind := field.Type.Kind(); file == "device" && (kind == reflect.Slice || kind == reflect.Pointer && field.Type.Elem().Kind() == reflect.Struct) {
				to = key
			}
			if value, ok := device[key]; ok {
				if parts[to] == nil {
					parts[to] = map[string]any{}
				}
				parts[to][key] = value
			}
		}
	}
	divide("device", reflect.TypeFor[jsonDevice]())
	return parts
}

// All that a page, a pipe or a terminal gets is safe, and no table is wider than a terminal.
func TestReportsAreSafe(t *testing.T) {
	for _, f := range goldenFixtures(t) {
		text := renderText(t, f.results, layout.Options{})
		var markdown bytes.Buffer
		assert.NoError(t, Markdown(&markdown, f.results, Scope{All: true}))
		reporttest.CheckSafe(t, text)
		reporttest.CheckSafe(t, markdown.String())
		for number, line := range strings.Split(text, "\n") {
			width := plain.Width(line)
			assert.That(t, width <= terminalWidth || !strings.HasPrefix(line, "│"), "%s: line %d has %d columns:\n%s", f.name, number+1, width, line)
		}
		assert.That(t, !strings.Contains(markdown.String(), "<script") && !strings.Contains(markdown.String(), "@all"),
			"%s: markup of the job got through", f.name)
		checkColumns(t, markdown.String())
		assert.That(t, f.name != "native" || !strings.Contains(text, "-1"), "a number that does not exist in\n%s", text)
	}
}
