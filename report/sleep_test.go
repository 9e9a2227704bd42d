package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
)

// A call about several arenas of a tag is one line; another call, or tag, is another.
func TestTransitionsByCall(t *testing.T) {
	const ms = 1_000_000
	d := &analysis.DeviceResult{Transitions: []analysis.Transition{
		{Time: 10 * ms, Duration: 2 * ms, Tag: "kv", Bytes: 3 << 30},
		{Time: 11 * ms, Duration: 3 * ms, Tag: "kv", Bytes: 1 << 30},
		{Time: 12 * ms, Duration: 4 * ms, Tag: "weights", Bytes: 8 << 20, Copied: 4 << 20},
		{Time: 20 * ms, Duration: 1 * ms, Tag: "kv", Resume: true, Failed: "no memory to resume on GPU 0"},
		{Time: 30 * ms, Duration: 4 * ms, Tag: "weights", Resume: true, Bytes: 8 << 20, Copied: 4 << 20},
	}}
	sections := sleepSections(d)
	if len(sections) != 1 {
		t.Fatalf("%d sections", len(sections))
	}
	var got [][]string
	for _, line := range sections[0].rows {
		var texts []string
		for _, c := range line {
			texts = append(texts, c.text)
		}
		got = append(got, texts)
	}
	want := [][]string{
		{"11.0 ms", "pause", "kv", "4 GiB", "0 B", "3.00 ms", "–", "done"},
		{"12.0 ms", "pause", "weights", "8 MiB", "4 MiB", "4.00 ms", "1000 MiB", "done"},
		{"20.0 ms", "resume", "kv", "0 B", "0 B", "1.00 ms", "–", "no memory to resume on GPU 0"},
		{"30.0 ms", "resume", "weights", "8 MiB", "4 MiB", "4.00 ms", "1000 MiB", "done"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if sleepSections(&analysis.DeviceResult{}) != nil {
		t.Error("a section where nothing slept")
	}
}
