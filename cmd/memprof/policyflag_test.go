package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

func TestPolicyFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // as the hook reads it, "" for an error
	}{
		{"", "preset=classic,limit=0,headroom=2147483648,handle=0,trim=never"},
		{"--preset compact", "preset=compact,limit=0,headroom=2147483648,handle=0,trim=never"},
		{"--preset compact --trim iteration --limit 1GiB", "preset=compact,limit=1073741824,headroom=2147483648,handle=0,trim=iteration"},
		{"--trim idle:1.5s --headroom 0 --handle 8MiB", "preset=classic,limit=0,headroom=0,handle=8388608,trim=idle:1500000000"},
		{"--trim never --headroom 3GiB", "preset=classic,limit=0,headroom=3221225472,handle=0,trim=never"},
		{"--preset tight", ""}, {"--handle x", ""}, {"--limit -1", ""},
		{"--trim idle", ""}, {"--trim idle:0s", ""}, {"--trim idle:5", ""}, {"--trim always", ""}, {"--trim pressure", ""},
		{"--growth needed", ""}, {"--split always", ""}, {"--placement planned", ""}, {"--small-arenas 1MiB", ""},
	} {
		var f policyFlags
		flags := pflag.NewFlagSet("record", pflag.ContinueOnError)
		f.add(flags)
		err := flags.Parse(strings.Fields(c.args))
		if (err != nil) != (c.want == "") || err == nil && f.policy().HookOptions() != c.want {
			t.Errorf("%s: %s, %v, want %s", c.args, f.policy().HookOptions(), err, c.want)
		}
	}
}

// An error about a flag's value names the flag and the value once.
func TestFlagErrors(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"record --trim x -- job", `--trim: unknown trim "x": use never,`},
		{"record --handle abc -- job", `--handle: size "abc" does not begin with a number:`},
		{"record --headroom=-5 -- job", `--headroom: size "-5" is negative:`},
		{"report --card x run", `--card: size "x" does not begin with a number:`},
		{"report --at x run", `--at "x": want the number of an event, 0 or more`},
		{"kv --tensor-parallel x", `--tensor-parallel "x": want a whole number`},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(&stdout, &stderr, strings.Fields(test.args)); code != exit.Usage || !strings.HasPrefix(stderr.String(), "memprof: "+test.want) {
			t.Errorf("memprof %s: exit code %d: %s\nwant %s", test.args, code, stderr.String(), test.want)
		}
	}
}
