package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// explored is a recording of steps of a job, with all that a page shows.
func explored(t testing.TB, steps int, more func(r *modeltest.Recorder, a *modeltest.Arena)) *analysis.Result {
	t.Helper()
	r := stepped(t, steps, more)
	source := func() trace.Source { return modeltest.Source(r.Events, 512) }
	return reporttest.Explored(t, source, analysis.Options{Process: "rank0", Text: r.Strings.Text, MaxPoints: 16384}, true)
}

func stepped(t testing.TB, steps int, more func(r *modeltest.Recorder, a *modeltest.Arena)) *modeltest.Recorder {
	t.Helper()
	r := modeltest.New()
	a, err := r.NewArena(0, bfc.Options{Limit: 1 << 30}, bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 << 20}), nil)
	assert.NoError(t, err)
	add := func(kind trace.Kind, requested, provided int64, text string) {
		r.Add(trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Requested: requested, Provided: provided, Context: r.Strings.Intern(text)})
	}
	take := func(size uint64, context string) uint64 {
		addr, ok := a.Alloc(size, context)
		assert.Must(t, ok, "no memory for %d bytes", size)
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

func pageOf(t testing.TB, p page.Page) []byte {
	t.Helper()
	var out bytes.Buffer
	assert.NoError(t, HTML(&out, p))
	return out.Bytes()
}

// The data of a page of a small recording, number by number.
func TestPageData(t *testing.T) {
	result := explored(t, 2, nil)
	page := pageOf(t, page.Page{Results: []*analysis.Result{result}, Path: "runs/mine runs/yours", Paths: map[*analysis.Result]string{result: "runs/mine"}})
	data := reporttest.Unpack(t, page).(map[string]any)
	device := data["processes"].([]any)[0].(map[string]any)["devices"].([]any)[0].(map[string]any)
	sections := device["sections"].([]any)
	titlesOnly(sections[:len(sections)-1])
	text, err := json.MarshalIndent(data, "", " ")
	assert.NoError(t, err)
	// A list of numbers on one line.
	text = regexp.MustCompile(`\[[-0-9,\s]+\]`).ReplaceAllFunc(text, func(list []byte) []byte {
		return regexp.MustCompile(`\s+`).ReplaceAll(list, nil)
	})
	reporttest.Golden(t, "page.json", append(text, '\n'))
}

// titlesOnly leaves sections their titles: what stands in them is in the golden files of their subjects.
func titlesOnly(sections []any) {
	for i, s := range sections {
		sections[i] = s.(map[string]any)["title"]
	}
}

// The policy names the script and the style by what they are, and allows nothing else.
func TestPagePolicy(t *testing.T) {
	for _, page := range [][]byte{
		pageOf(t, page.Page{Results: []*analysis.Result{explored(t, 2, nil)}}),
		pageOf(t, page.Page{}),
	} {
		text := string(page)
		policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
		assert.Must(t, policy != nil, "no policy")
		hash := func(pattern string) string {
			found := regexp.MustCompile(pattern).FindStringSubmatch(text)
			assert.Must(t, found != nil, "no %s", pattern)
			sum := sha256.Sum256([]byte(found[1]))
			return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
		want := "default-src 'none'; script-src " + hash(`(?s)<script>(.*?)</script>`) + "; style-src " + hash(`(?s)<style>(.*?)</style>`) +
			"; img-src data:; base-uri 'none'; form-action 'none'"
		assert.Diff(t, want, policy[1])
		for _, bad := range []string{"http:", "https:", "innerHTML", "eval(", "document.write", "insertAdjacentHTML", "Function("} {
			assert.That(t, !strings.Contains(text, bad), "the page has %q", bad)
		}
	}
}

// A page that would be too long gives up keyframes, those without which it says less last.
func TestPageIsBounded(t *testing.T) {
	r := explored(t, 3000, nil)
	whole := pageOf(t, page.Page{Results: []*analysis.Result{r}})
	bound := len(whole) - 1
	short := pageOf(t, page.Page{Results: []*analysis.Result{r}, MaxBytes: bound})
	assert.That(t, len(short) <= bound, "%d bytes, want at most %d", len(short), bound)
	frames := func(page []byte) (seqs []int64, of float64) {
		device := reporttest.Unpack(t, page).(map[string]any)["processes"].([]any)[0].(map[string]any)["devices"].([]any)[0].(map[string]any)
		k := device["keyframes"].(map[string]any)
		return k["seq"].([]int64), k["of"].(float64)
	}
	all, _ := frames(whole)
	kept, of := frames(short)
	assert.That(t, len(kept) < len(all) && int(of) == len(all) && len(all) >= 200, "%d of %d keyframes are kept of %d", len(kept), int(of), len(all))
	for i := range r.Devices[0].Keyframes.Frames {
		f := &r.Devices[0].Keyframes.Frames[i]
		found := false
		for _, seq := range kept {
			found = found || seq == f.At.Seq
		}
		assert.That(t, !f.Essential() || found, "the keyframe at %d (%b) is gone", f.At.Seq, f.Why)
	}
}

// TestDiffPageData checks that each line of a comparison has its change, from which the page draws a bar.
func TestDiffPageData(t *testing.T) {
	var out bytes.Buffer
	assert.NoError(t, DiffHTML(&out, compared()))
	type line struct {
		Name    any
		Change  any
		Outcome any
	}
	var metrics []line
	for _, p := range reporttest.Unpack(t, out.Bytes()).(map[string]any)["parts"].([]any) {
		p := p.(map[string]any)
		rows, changes, outcomes := p["rows"].([]any), p["changes"].([]any), p["outcomes"].([]any)
		assert.Must(t, len(rows) == len(changes) && len(rows) == len(outcomes),
			"%v: %d lines, %d changes, %d outcomes", p["title"], len(rows), len(changes), len(outcomes))
		if strings.HasPrefix(p["title"].(string), "Metrics") {
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
		{"waste.external", 0.0, "better"}, // a share has no bar
		{"reserved.peak", 1.0, "worse"},
		{"leak.slope", 1536.5 / (2 << 30), "worse"},
		{"oom.count", 0.0, "worse"},
		{"used.peak", 0.0, "one-sided"},
	}
	assert.Diff(t, want, metrics)
}
