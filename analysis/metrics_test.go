package analysis

import (
	"math"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The metrics of the worked example with one free after its peak, by hand.
func TestMetrics(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: 1 << 30}, bfc.DeviceOptions{})
	alloc(t, a, 1000, "")
	b := alloc(t, a, 1_500_000, "")
	r.Mark(0)
	alloc(t, a, 590_000, "")
	a.Free(b, false)
	r.Mark(1)
	d := run(t, r, Options{}).Devices[0]
	d.Replays = []Replay{{Allocator: "torch", Reserved: 7, LeastCard: 5}, {Allocator: "memprof", LeastCard: 8, Recorded: true}}

	// At the peak, R is 6 MiB in regions of 2 and 4 MiB; T = 1,000 + 1,500,000 + 590,000.
	const reserved, requested, provided = 6 * mib, 2_091_000., 2_687_232.
	want := map[string]float64{
		"reserved.peak": reserved, "reserved.final": reserved, "torch.reserved.peak": 7, "least_card": 8,
		"requested.peak": requested, "requested.at_peak": requested, "provided.peak": provided,
		"pending.at_peak": 0, "live.peak": 3, "other_libraries.peak": 0,
		"waste.internal": 596_232. / reserved, "waste.internal.bytes": 596_232,
		"waste.rounding": 264. / reserved, "waste.rounding.bytes": 264,
		"waste.slack": 595_968. / reserved, "waste.slack.bytes": 595_968,
		"waste.stranded": 0, "waste.stranded.bytes": 0, "waste.reusable": 0, "waste.reusable.bytes": 0,
		"waste.reserve": 3_604_224. / reserved, "waste.reserve.bytes": 3_604_224,
		"waste.external": 0, "waste.external.bytes": 0,
		"waste.total": (reserved - requested) / reserved, "waste.total.bytes": reserved - requested,
		"fragmentation.peak": 0,
		"idle.requested":     1 - requested/reserved, "idle.provided": 1 - provided/reserved,
		"iteration.first_excess": 2_097_152/provided - 1, "iteration.steady_idle": 1 - provided/reserved,
		"iteration.own_idle": 1 - provided/reserved,
		"oom.count":          0, "growth.count": 2, "growth.fragmentation": 0,
	}
	seen := map[string]bool{}
	for _, m := range Metrics() {
		assert.That(t, !seen[m.Name] && m.Help != "", "%s is there twice, or says nothing of itself", m.Name)
		seen[m.Name] = true
		if ofAttribution(m) || ofCaptures(m) {
			continue // TestAttributionMetrics has them
		}
		value, _, ok := m.Value(d.Subjects())
		if strings.HasPrefix(m.Name, "leak.") {
			assert.That(t, !ok, "%s of two iterations", m.Name)
			continue
		}
		if ofAccounting(m) || ofTags(m) {
			continue // TestAccountingMetrics and TestPauseMetrics have them
		}
		if ofKV(m) {
			continue // TestKVCaches has them
		}
		expected, there := want[m.Name]
		assert.That(t, there && ok && math.Abs(value-expected) <= 1e-12*max(1, expected), "%s = %v (%v), want %v", m.Name, value, ok, expected)
	}
	for name := range want {
		m, ok := LookupMetric(name)
		assert.That(t, ok && m.Name == name, "%s is not found", name)
	}
	_, ok := LookupMetric("waste")
	assert.That(t, !ok, "waste is found")
}

func ofTags(m Metric) bool     { return strings.HasPrefix(m.Name, "pause.") }
func ofCaptures(m Metric) bool { return strings.HasPrefix(m.Name, "graphs.") }
func ofKV(m Metric) bool       { return strings.HasPrefix(m.Name, "kv.") }
func ofAccounting(m Metric) bool {
	return strings.HasPrefix(m.Name, "accounting.") || m.Name == "used.peak"
}

// A number that is not known is not 0: a gate on it must not pass.
func TestUnknownMetrics(t *testing.T) {
	r := modeltest.New()
	newArena(t, r, bfc.Options{Limit: 1 << 30}, bfc.DeviceOptions{}) // that is never used
	d := run(t, r, Options{}).Devices[0]
	unknown := map[string]bool{
		"waste.internal": true, "waste.rounding": true, "waste.slack": true, "waste.reserve": true,
		"waste.stranded": true, "waste.reusable": true, "torch.reserved.peak": true, "least_card": true,
		"waste.external": true, "waste.total": true, "idle.requested": true, "idle.provided": true,
		"iteration.first_excess": true, "iteration.steady_idle": true, "iteration.own_idle": true, "leak.slope": true, "leak.per_request": true, "leak.per_second": true,
		"used.peak": true, "accounting.unexplained": true, "accounting.unexplained.bytes": true,
		"accounting.other_libraries": true, "accounting.driver_overhead": true,
	}
	for _, m := range Metrics() {
		if ofAttribution(m) || ofTags(m) || ofCaptures(m) {
			continue
		}
		if ofKV(m) {
			unknown[m.Name] = true
		}
		value, _, ok := m.Value(d.Subjects())
		assert.That(t, ok != unknown[m.Name] && value == value, "%s = %v, known %v", m.Name, value, ok)
		assert.That(t, ok || m.Unknown(d.Subjects()) != "", "%s is unknown, and nothing says why", m.Name)
	}
}
