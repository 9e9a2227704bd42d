package report

import (
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
)

// unpack reads the data of a page, with the numbers of columns in their places.
func unpack(t testing.TB, page []byte) any {
	t.Helper()
	found := regexp.MustCompile(`(?s)id="data">([^<]*)</script>`).FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no data")
	}
	compressed, err := base64.StdEncoding.DecodeString(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	z, err := zlib.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	length := binary.LittleEndian.Uint32(data)
	var description any
	if err := json.Unmarshal(data[4:4+length], &description); err != nil {
		t.Fatal(err)
	}
	return withColumns(t, description, data[4+length:])
}

func withColumns(t testing.TB, value any, columns []byte) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = withColumns(t, value[i], columns)
		}
	case map[string]any:
		at, packed := value["$"].([]any)
		if !packed {
			for key := range value {
				value[key] = withColumns(t, value[key], columns)
			}
			return value
		}
		numbers := []int64{}
		rest, last := columns[int(at[0].(float64)):], int64(0)
		for range int(at[1].(float64)) {
			difference, n := binary.Varint(rest)
			if n <= 0 {
				t.Fatal("a column ends too early")
			}
			rest, last = rest[n:], last+difference
			numbers = append(numbers, last)
		}
		return numbers
	}
	return value
}

// explored is a recording of steps of a job, with all that a page shows.
func explored(t testing.TB, steps int, more func(r *modeltest.Recorder, a *modeltest.Arena)) *analysis.Result {
	t.Helper()
	r := stepped(t, steps, more)
	result, err := analysis.Run(modeltest.Source(r.Events, 512), analysis.Options{Process: "rank0", Text: r.Strings.Text, Explore: true, MaxPoints: 16384})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func stepped(t testing.TB, steps int, more func(r *modeltest.Recorder, a *modeltest.Arena)) *modeltest.Recorder {
	t.Helper()
	r := modeltest.New()
	a, err := r.NewArena(0, bfc.Options{Limit: 1 << 30}, bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 << 20}), nil)
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind trace.Kind, requested, provided int64, text string) {
		r.Add(trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Requested: requested, Provided: provided, Context: r.Strings.Intern(text)})
	}
	take := func(size uint64, context string) uint64 {
		addr, ok := a.Alloc(size, context)
		if !ok {
			t.Fatalf("no memory for %d bytes", size)
		}
		return addr
	}
	add(trace.KindStack, 1, 0, "main train.py:40")
	add(trace.KindStack, 2, 1, "forward model.py:12")
	weights := take(3<<20, "module=model.layer1")
	r.Add(trace.Event{Kind: trace.KindLabel, Addr: int64(weights), Context: r.Strings.Intern("category=weights\tname=model.layer1.weight")})
	for i := range steps {
		add(trace.KindPhaseBegin, 0, 0, "forward")
		x := take(uint64(1<<20+1000*(i%3)), "module=model.layer1\tstack=2")
		y := take(300_000, "module=model.layer2\tstack=2")
		add(trace.KindPhaseEnd, 0, 0, "forward")
		a.Free(x, false)
		if more != nil {
			more(r, a)
		}
		a.Free(y, false)
		r.Mark(int64(i))
	}
	return r
}

func pageOf(t testing.TB, p Page) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := HTML(&out, p); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// What a page is told of a small recording, number by number.
func TestPageData(t *testing.T) {
	result := explored(t, 2, nil)
	page := pageOf(t, Page{Results: []*analysis.Result{result}, Path: "runs/mine runs/yours", Paths: map[*analysis.Result]string{result: "runs/mine"}})
	text, err := json.MarshalIndent(unpack(t, page), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	// A list of numbers on one line.
	text = regexp.MustCompile(`\[[-0-9,\s]+\]`).ReplaceAllFunc(text, func(list []byte) []byte {
		return regexp.MustCompile(`\s+`).ReplaceAll(list, nil)
	})
	reporttest.Golden(t, "page.json", append(text, '\n'))
}

// The policy names the script and the style by what they are, and allows nothing else.
func TestPagePolicy(t *testing.T) {
	for _, page := range [][]byte{
		pageOf(t, Page{Results: []*analysis.Result{explored(t, 2, nil)}}),
		pageOf(t, Page{}),
	} {
		text := string(page)
		policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
		if policy == nil {
			t.Fatal("no policy")
		}
		hash := func(pattern string) string {
			found := regexp.MustCompile(pattern).FindStringSubmatch(text)
			if found == nil {
				t.Fatalf("no %s", pattern)
			}
			sum := sha256.Sum256([]byte(found[1]))
			return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
		want := "default-src 'none'; script-src " + hash(`(?s)<script>(.*?)</script>`) + "; style-src " + hash(`(?s)<style>(.*?)</style>`) +
			"; img-src data:; base-uri 'none'; form-action 'none'"
		if diff := cmp.Diff(want, policy[1]); diff != "" {
			t.Error(diff)
		}
		for _, bad := range []string{"http:", "https:", "innerHTML", "eval(", "document.write", "insertAdjacentHTML", "Function("} {
			if strings.Contains(text, bad) {
				t.Errorf("the page has %q", bad)
			}
		}
	}
}

// Scripts are correct as far as a parser can tell.
func TestPageScripts(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine: the scripts are not parsed")
	}
	for page := range scripts {
		code, err := script(page)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(node, "--check", "-")
		cmd.Stdin = strings.NewReader(code)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", page, err, out)
		}
	}
}

// A name like a property that every object has is a name like any other, and has a colour of its own.
func TestPageNames(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine: the scripts are not run")
	}
	code, err := pageFiles.ReadFile("html/device.js")
	if err != nil {
		t.Fatal(err)
	}
	const before = `const theme = { colors: { series: ['s0', 's1', 's2', 's3', 's4', 's5', 's6', 's7', 's8', 's9'], grid: 'grid' } };
const mix = (color) => color, hashOf = () => 0.5;
`
	const after = `
const holders = { groups: ['constructor', '__proto__', 'toString', 'weights'].map((name, i) => ({ holder: i, size: 1, requested: 4 - i, name })) };
const view = { holders, coloring: 'category', colorName: (holder) => holders.groups[holder].name };
for (const name of ['forward', 'other', 'constructor', '__proto__', 'toString', 'mine']) console.log(name, DeviceView.prototype.phaseColor(name));
const space = SPACE;
const assigned = space.prototype.assign.call(view);
for (const group of holders.groups) console.log(group.name, assigned.of.get(group.name));
`
	cmd := exec.Command(node, "-")
	cmd.Stdin = strings.NewReader(before + string(code) + strings.Replace(after, "SPACE", classWith(t, string(code), "  assign() {"), 1))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "forward s0\nother grid\nconstructor s6\n__proto__ s6\ntoString s6\nmine s6\n" +
		"constructor 9\n__proto__ 9\ntoString 9\nweights 0\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// classWith is the name of the class of a script in which a line stands.
func classWith(t *testing.T, code, line string) string {
	t.Helper()
	before, _, found := strings.Cut(code, line)
	at := strings.LastIndex(before, "\nclass ")
	if !found || at < 0 {
		t.Fatalf("no class with %q", line)
	}
	return strings.Fields(before[at:])[1]
}

// Joining points keeps the least and the greatest, also of C that is not always known.
func TestCoarser(t *testing.T) {
	point := func(start, low, high, last, c int64) analysis.Point {
		return analysis.Point{
			Start: start, End: start + 5, T: analysis.Range{Min: low, Max: high}, R: analysis.Range{Min: 2 * low, Max: 2 * high},
			C: analysis.Range{Min: c, Max: c}, Last: analysis.Instant{Seq: start + 1, T: last, C: c, R: 2 * last},
		}
	}
	got := coarser([]analysis.Point{point(0, 5, 9, 7, -1), point(10, 1, 8, 8, 20), point(20, 4, 30, 6, -1), point(30, 6, 7, 6, 10), point(40, 2, 3, 3, -1)})
	want := []analysis.Point{
		{Start: 0, End: 35, T: analysis.Range{Min: 1, Max: 30}, R: analysis.Range{Min: 2, Max: 60}, C: analysis.Range{Min: 10, Max: 20},
			Last: analysis.Instant{Seq: 31, T: 6, C: 10, R: 12}},
		{Start: 40, End: 45, T: analysis.Range{Min: 2, Max: 3}, R: analysis.Range{Min: 4, Max: 6}, C: analysis.Range{Min: -1, Max: -1},
			Last: analysis.Instant{Seq: 41, T: 3, C: -1, R: 6}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPageLevels(t *testing.T) {
	points := make([]analysis.Point, 10_000)
	for i := range points {
		points[i] = analysis.Point{Start: int64(10 * i), End: int64(10*i + 5), T: analysis.Range{Min: int64(i % 97), Max: int64(i % 97)}}
	}
	points[7777].T = analysis.Range{Min: -1, Max: 1 << 40}
	var p pack
	var counts []int
	for _, level := range newPageLevels(&p, points) {
		counts = append(counts, level.Start.count)
		numbers := func(c packed) []int64 {
			return withColumns(t, map[string]any{"$": []any{float64(c.start), float64(c.count)}}, p.columns).([]int64)
		}
		least, most := numbers(level.MinT), numbers(level.MaxT)
		low, high := least[0], most[0]
		for i := range least {
			low, high = min(low, least[i]), max(high, most[i])
		}
		if low != -1 || high != 1<<40 {
			t.Errorf("a level of %d points goes from %d to %d", level.Start.count, low, high)
		}
	}
	if diff := cmp.Diff([]int{10_000, 2500, 625, 157}, counts); diff != "" {
		t.Error(diff)
	}
}

// Of many iterations neighbours share a line; one that stands apart has its own.
func TestIterationRows(t *testing.T) {
	var iterations []analysis.Iteration
	for i := range int64(100) {
		iterations = append(iterations, analysis.Iteration{
			Number: i, StartSeq: 10 * i, EndSeq: 10*i + 9, Start: 100 * i, End: 100*i + 100, PeakT: 1000 + i%2, PeakC: 2000, PeakR: 4000, EndT: 10, Allocs: 3, AllocBytes: 30,
		})
	}
	iterations[50].PeakT = 5000
	type row struct{ number, last, count, peakT, allocs, marks int64 }
	var got []row
	for _, r := range iterationRows(iterations, 4) {
		got = append(got, row{r.Number, r.last, r.count, r.PeakT, r.Allocs, r.marks})
	}
	want := []row{{0, 24, 25, 1001, 75, 0}, {25, 49, 25, 1001, 75, 0}, {50, 50, 1, 5000, 3, 2}, {51, 75, 25, 1001, 75, 0}, {76, 99, 24, 1001, 72, 0}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
	if n := len(iterationRows(iterations, 4096)); n != 100 {
		t.Errorf("%d lines of 100 iterations", n)
	}
}

// A page that would be too long gives up keyframes, those without which it says less last.
func TestPageIsBounded(t *testing.T) {
	r := explored(t, 3000, nil)
	whole := pageOf(t, Page{Results: []*analysis.Result{r}})
	bound := len(whole) - 1
	short := pageOf(t, Page{Results: []*analysis.Result{r}, MaxBytes: bound})
	if len(short) > bound {
		t.Errorf("%d bytes, want at most %d", len(short), bound)
	}
	frames := func(page []byte) (seqs []int64, of float64) {
		device := unpack(t, page).(map[string]any)["processes"].([]any)[0].(map[string]any)["devices"].([]any)[0].(map[string]any)
		k := device["keyframes"].(map[string]any)
		return k["seq"].([]int64), k["of"].(float64)
	}
	all, _ := frames(whole)
	kept, of := frames(short)
	if len(kept) >= len(all) || int(of) != len(all) || len(all) < 200 {
		t.Errorf("%d of %d keyframes are kept of %d", len(kept), int(of), len(all))
	}
	for i := range r.Devices[0].Keyframes.Frames {
		f := &r.Devices[0].Keyframes.Frames[i]
		found := false
		for _, seq := range kept {
			found = found || seq == f.At.Seq
		}
		if f.Essential() && !found {
			t.Errorf("the keyframe at %d (%b) is gone", f.At.Seq, f.Why)
		}
	}
}

// Beside each line of a comparison stands how far it changed, for its bar.
func TestDiffPageData(t *testing.T) {
	var out bytes.Buffer
	if err := DiffHTML(&out, compared()); err != nil {
		t.Fatal(err)
	}
	type line struct {
		Name    any
		Change  any
		Outcome any
	}
	var metrics []line
	for _, p := range unpack(t, out.Bytes()).(map[string]any)["parts"].([]any) {
		p := p.(map[string]any)
		rows, changes, outcomes := p["rows"].([]any), p["changes"].([]any), p["outcomes"].([]any)
		if len(rows) != len(changes) || len(rows) != len(outcomes) {
			t.Fatalf("%v: %d lines, %d changes, %d outcomes", p["title"], len(rows), len(changes), len(outcomes))
		}
		if p["title"] == "Metrics" {
			for i := range rows {
				name := rows[i].([]any)[0]
				if toned, ok := name.([]any); ok {
					name = toned[0]
				}
				metrics = append(metrics, line{name, changes[i], outcomes[i]})
			}
		}
	}
	want := []line{
		{"reserved.peak", 2.0 / 42, "grew"},
		{"reserved.final", 100.0 / (40*1024 + 100), "within noise"},
		{"waste.external", -0.125, "shrank"},
		{"leak.slope", 1.0, "grew"},
		{"oom.count", 0.5, "grew"},
		{"used.peak", 0.0, "one-sided"},
	}
	if diff := cmp.Diff(want, metrics); diff != "" {
		t.Error(diff)
	}
}
