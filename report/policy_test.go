package report

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/bfc"
)

func TestAllocatorLine(t *testing.T) {
	main := func(fields ...string) map[string]string {
		options := map[string]string{"main": "1"}
		for i := 0; i < len(fields); i += 2 {
			options[fields[i]] = fields[i+1]
		}
		return options
	}
	compact := main("growth", "pages", "split", "always", "trim", "never", "placement", "planned", "headroom", "0")
	for _, c := range []struct {
		name   string
		arenas []map[string]string
		want   string
	}{
		{"older than all but growth", []map[string]string{main("growth", "double")},
			"Allocator: memprof's, not PyTorch's; preset classic (growth double, split classic, trim never)"},
		{"compact", []map[string]string{{"growth": "needed", "tag": "kv"}, compact},
			"Allocator: memprof's, not PyTorch's; preset compact (growth pages, split always, trim never, placement planned)"},
		{"what compact was before", []map[string]string{main("growth", "needed", "split", "always", "trim", "iteration", "placement", "planned")},
			"Allocator: memprof's, not PyTorch's; growth needed, split always, trim iteration, placement planned"},
		{"no preset", []map[string]string{main("growth", "step:1048576", "split", "65536", "trim", "idle:1500000000")},
			"Allocator: memprof's, not PyTorch's; growth step:1MiB, split 64KiB, trim idle:1.5s"},
		{"small arenas", []map[string]string{compact, {"growth": "needed", "below": "1048576"}},
			"Allocator: memprof's, not PyTorch's; growth pages, split always, small-arenas 1MiB, trim never, placement planned"},
		{"native", []map[string]string{{"allocator": "native", "provided": "unknown"}}, "Allocator: PyTorch's own (native), observed"},
		{"no arena", nil, ""},
		{"damaged", []map[string]string{main("growth", "thrice")}, ""},
	} {
		r := &analysis.Result{}
		for _, options := range c.arenas {
			r.Arenas = append(r.Arenas, ledger.Info{Options: options})
		}
		if got := allocatorLine(r, &analysis.DeviceResult{Chunks: &analysis.Chunks{}}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPolicyFlags(t *testing.T) {
	compact, err := bfc.PresetNamed("compact")
	if err != nil {
		t.Fatal(err)
	}
	small := compact
	small.SmallArenas = 1 << 20
	for want, p := range map[string]bfc.Policy{
		"--preset classic":                            bfc.Classic(),
		"--preset compact":                            compact,
		"--preset compact --small-arenas 1MiB":        small,
		"--preset classic --growth step:3MiB":         {Growth: bfc.Step, Step: 3 << 20},
		"--preset classic --growth needed --split 1B": {Growth: bfc.Needed, Split: 1},
	} {
		if got := PolicyFlags(p); got != want {
			t.Errorf("%+v: %s, want %s", p, got, want)
		}
	}
}
