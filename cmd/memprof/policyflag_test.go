package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
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
