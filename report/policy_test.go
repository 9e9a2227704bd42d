package report

import (
	"testing"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestAllocatorLine(t *testing.T) {
	main := func(fields ...string) map[string]string {
		options := map[string]string{"main": "1"}
		for i := 0; i < len(fields); i += 2 {
			options[fields[i]] = fields[i+1]
		}
		return options
	}
	compact := main("growth", "pages", "split", "always", "trim", "never", "headroom", "0")
	for _, c := range []struct {
		name   string
		arenas []map[string]string
		want   string
	}{
		{"older than all but growth", []map[string]string{main("growth", "double")}, "Allocator: memprof's, not PyTorch's; preset classic (growth double, split classic, trim never)"},
		{"compact", []map[string]string{{"growth": "needed", "tag": "kv"}, compact}, "Allocator: memprof's, not PyTorch's; preset compact (growth pages, split always, trim never)"},
		{"with a trim", []map[string]string{main("growth", "double", "trim", "idle:1500000000")}, "Allocator: memprof's, not PyTorch's; preset classic (growth double, split classic, trim idle:1.5s)"},
		{"native", []map[string]string{{"allocator": "native", "provided": "unknown"}}, "Allocator: PyTorch's own (native), observed"},
		{"no arena", nil, ""},
		{"damaged", []map[string]string{main("growth", "thrice")}, ""},
	} {
		r := &analysis.Result{}
		for _, options := range c.arenas {
			r.Arenas = append(r.Arenas, ledger.Info{Options: options})
		}
		d := &analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}}}
		if c.name == "native" {
			d.Native = &torchalloc.Observed{}
		}
		assert.Equal(t, allocatorLine(r, d), c.want, "%s", c.name)
	}
}

func TestPolicyFlags(t *testing.T) {
	for want, p := range map[string]bfc.Policy{
		"--preset classic": bfc.Classic.Policy(),
		"--preset compact --trim iteration --handle 8MiB": {Preset: bfc.Compact, Trim: bfc.Trim{When: bfc.TrimIteration}, Handle: 8 << 20, Limit: 5},
		"--preset classic --trim idle:50ms":               {Trim: bfc.Trim{When: bfc.TrimIdle, Idle: 50 * time.Millisecond}},
	} {
		assert.Equal(t, PolicyFlags(p), want, "%+v", p)
	}
}
