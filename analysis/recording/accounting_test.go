package recording

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestNameCards: a hidden card moves the process's numbers.
func TestNameCards(t *testing.T) {
	info := &dataset.Info{ID: "run1", GPUs: []dataset.GPU{{Index: 0, UUID: "GPU-a", Memory: 10}, {Index: 1, UUID: "GPU-b", Memory: 20}}}
	result := &analysis.Result{
		Devices: []analysis.DeviceResult{{Device: 0}, {Device: 1}, {Device: 2}},
		Arenas: []ledger.Info{
			{Device: 0, Options: map[string]string{"uuid": "GPU-b"}},
			{Device: 2, Options: map[string]string{"uuid": "MIG-c"}},
		},
	}
	nameCards(result, info)
	type card struct {
		Card  string
		Total int64
	}
	var got []card
	for _, d := range result.Devices {
		got = append(got, card{d.Card, d.Total})
	}
	assert.Diff(t, []card{{"run1/GPU-b", 20}, {"run1/GPU-b", 20}, {}}, got)
	simulated := &analysis.Result{Devices: []analysis.DeviceResult{{Device: 0}}}
	nameCards(simulated, &dataset.Info{ID: "run1", GPUs: []dataset.GPU{{Index: 0, Memory: 10}}})
	d := simulated.Devices[0]
	assert.That(t, d.Card == "" && d.Total == 10, "simulated: card %q of %d, want none of 10", d.Card, d.Total)
}

func TestCardOf(t *testing.T) {
	gpus := []dataset.GPU{{UUID: "GPU-aaaa-1"}, {UUID: "GPU-bbbb-2"}, {UUID: "GPU-cccc-3"}}
	tests := []struct {
		name    string
		uuid    string // of the arena on device 1
		visible string // "unset" for none
		ordinal int32
		want    int
	}{
		{"by name", "GPU-CCCC-3", "unset", 1, 2},
		{"the name goes before the order", "GPU-aaaa-1", "2,1", 1, 0},
		{"of another device's arena", "GPU-cccc-3", "unset", 0, 0},
		{"by order", "", "unset", 2, 2},
		{"beyond the list", "", "unset", 3, -1},
		{"by order of those visible", "", "2, 0", 1, 0},
		{"beyond those visible", "", "2", 1, -1},
		{"visible by name", "", "GPU-bbbb,GPU-cccc", 1, 2},
		{"none visible", "", "", 0, -1},
		{"hidden by a negative", "", "-1", 0, -1},
		{"a name that is not there", "MIG-dddd", "unset", 1, 1},
	}
	for _, test := range tests {
		info := &dataset.Info{GPUs: gpus, Options: map[string]string{}}
		if test.visible != "unset" {
			info.Options[dataset.OptionVisible] = test.visible
		}
		result := &analysis.Result{Arenas: []ledger.Info{{Device: 1, Options: map[string]string{"uuid": test.uuid}}}}
		assert.Equal(t, CardOf(result, test.ordinal, info), test.want, "%s", test.name)
	}
}
