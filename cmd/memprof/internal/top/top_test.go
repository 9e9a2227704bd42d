package top

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// At 80 columns nothing of a row is cut off; with few rows it is said how much is missing.
func TestTopTable(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	arena := func(n int32) *int32 { return &n }
	rate := 1234567.0
	look := &View{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"python3", "train\x1b[2J.py"},
		Processes: []Process{{
			Process: "rank0", Events: 1234, Rate: &rate, Iteration: number(17), Phase: "forward",
			Devices: []Memory{{Device: 0, Requested: 70 << 30, Provided: number(71 << 30), Reserved: 72 << 30, MaxReserved: 73 << 30, Live: 123456, Paused: 1 << 30, OOMs: number(2)}},
			Arenas: []Memory{
				{Arena: arena(0), Stream: number(0), Requested: 1, Provided: nil, Reserved: 2 << 20, MaxReserved: 2 << 20, Live: 1},
				{Arena: arena(1), Stream: number(0), Tag: "a tag with a long name", IsPaused: true, Reserved: 4 << 20, MaxReserved: 4 << 20},
			},
		}},
		Cards: []Card{{Index: 0, Name: "NVIDIA H200", Used: number(80 << 30), Total: 140 << 30}, {Index: 1, Name: "unknown"}},
	}
	want := []string{
		`memprof top  03:04:05  recording  python3 train\x1b[2J.py`,
		`card 0 NVIDIA H200: 80 GiB of 140 GiB used, all programs`,
		``,
		`rank0: 1,234 events, 1,234,567/s, iteration 17, in forward`,
		`                         requested  provided  reserved largest R allocations`,
		`  GPU 0                     70 GiB    71 GiB    72 GiB    73 GiB     123,456`,
		`    1 GiB paused, 2 requests failed`,
		`    arena 1 tag a tag wi       0 B         -     4 MiB     4 MiB           0`,
		`    arena 0                    1 B         -     2 MiB     2 MiB           1`,
	}
	got := table(look, 80, 0)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	for _, line := range got {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	look.Command = []string{"python3", strings.Repeat("x", 57_000)}
	if line := table(look, 0, 0)[0]; line != "memprof top  03:04:05  recording  python3 "+strings.Repeat("x", 191)+"…" {
		t.Errorf("a long command line, not on a terminal: %d bytes: %.300s", len(line), line)
	}
	if line := table(look, 80, 0)[0]; line != "memprof top  03:04:05  recording  python3 "+strings.Repeat("x", 38) {
		t.Errorf("a long command line, of 80 columns: %s", line)
	}
	few := table(look, 80, 5)
	if len(few) != 5 || !strings.HasPrefix(few[4], "… 5 more lines") {
		t.Errorf("in 5 rows: %q", few)
	}
}
