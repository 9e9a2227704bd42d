package analysis

import (
	"testing"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// taggedJob has two arenas of tag kv and one without, on one device. The greatest R of the tag is
// 6 MiB while both its arenas are resident, that of the device 12 MiB at the end, when one of them is paused.
func taggedJob(r *modeltest.Recorder) {
	add := func(kind trace.Kind, arena int32, addr, requested, provided int64, context string) {
		r.Add(trace.Event{Kind: kind, Arena: arena, Addr: addr, Requested: requested, Provided: provided, Context: r.Strings.Intern(context)})
	}
	at := func(arena int64) int64 { return (arena + 1) << 40 }
	for arena, options := range []string{"coalesces=1\ttag=", "coalesces=1\ttag=kv", "coalesces=1\ttag=kv"} {
		add(trace.KindArena, int32(arena), at(int64(arena)), -1, 1<<36, options)
	}
	begin := phase(r, "prefill")
	add(trace.KindMap, 1, at(1), 0, 4*mib, "")
	add(trace.KindAlloc, 1, at(1), 3*mib-100, 3*mib, "")
	add(trace.KindMap, 2, at(2), 0, 2*mib, "")
	add(trace.KindAlloc, 2, at(2), 1000, 1024, "")
	begin()
	add(trace.KindPause, 2, 5000, 2*mib, 0, "tag=kv")
	add(trace.KindMap, 0, at(0), 0, 8*mib, "")
	add(trace.KindAlloc, 0, at(0), 8*mib, 8*mib, "")
}

func TestOfTag(t *testing.T) {
	r := modeltest.New()
	taggedJob(r)
	result, err := Run(modeltest.Source(r.Events, 3), Options{Text: r.Strings.Text})
	assert.NoError(t, err)
	d := &result.Devices[0]
	of, ok := result.OfTag(d, "kv")
	assert.Must(t, ok && d.MaxR == 12*mib, "tag found: %v, R of the device %d", ok, d.MaxR)
	known := map[string]bool{}
	for name, want := range map[string]float64{
		"reserved.peak":        6 * mib,
		"reserved.final":       4 * mib, // the other one is paused
		"requested.peak":       3*mib - 100 + 1000,
		"provided.peak":        3*mib + 1024,
		"requested.at_peak":    3*mib - 100,
		"live.peak":            1,
		"waste.reserve":        0.25, // of 4 MiB
		"waste.total.bytes":    mib + 100,
		"waste.slack.bytes":    0,
		"waste.rounding.bytes": 100,
	} {
		m, ok := LookupMetric(name)
		assert.Must(t, ok, "no metric %s", name)
		if got, _, ok := m.Value(of); !ok || got != want {
			t.Errorf("%s of the tag is %v, %v; want %v", name, got, ok, want)
		}
	}
	for _, name := range MetricsOf(OneTag) {
		m, ok := LookupMetric(name)
		if !ok || known[name] {
			t.Errorf("%s: a metric %v, named before %v", name, ok, known[name])
			continue
		}
		known[name] = true
		if _, _, ok := m.Value(of); !ok {
			t.Errorf("%s has no value of a tag", name)
		}
	}
	if _, ok := result.OfTag(d, "weights"); ok {
		t.Error("a tag that never was is found")
	}
}

func TestOfPhase(t *testing.T) {
	r := modeltest.New()
	taggedJob(r)
	result, err := Run(modeltest.Source(r.Events, 3), Options{Text: r.Strings.Text})
	assert.NoError(t, err)
	d := &result.Devices[0]
	of, ok := d.OfPhase("prefill")
	assert.Must(t, ok, "the phase is not found")
	for i, want := range []float64{3*mib - 100 + 1000, 3*mib - 100, 3*mib + 1024, 1} {
		m, _ := LookupMetric(MetricsOf(OnePhase)[i])
		got, _, ok := m.Value(of)
		assert.That(t, ok && got == want, "%s of the phase is %v, %v; want %v", m.Name, got, ok, want)
	}
	if _, ok := d.OfPhase("decode"); ok {
		t.Error("a phase that never was is found")
	}
}

// A part has the metrics whose subjects it has, and no others: what is missing there cannot read 0 and pass a gate.
func TestMetricsOfParts(t *testing.T) {
	r := modeltest.New()
	taggedJob(r)
	result, err := Run(modeltest.Source(r.Events, 3), Options{Text: r.Strings.Text})
	assert.NoError(t, err)
	d := &result.Devices[0]
	tag, _ := result.OfTag(d, "kv")
	phase, _ := d.OfPhase("prefill")
	for _, of := range []*Subjects{tag, phase} {
		for _, m := range Metrics() {
			_, _, ok := m.Value(of)
			assert.That(t, ok == m.Of(of.Part), "part %d: %s has a value %t, registered %t", of.Part, m.Name, ok, m.Of(of.Part))
			assert.That(t, m.Of(of.Part) || m.Unknown(of) != "", "part %d: nothing says why %s has no value", of.Part, m.Name)
		}
	}
}
