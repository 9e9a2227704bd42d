package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

func TestPolicyFlags(t *testing.T) {
	var f policyFlags
	flags := pflag.NewFlagSet("record", pflag.ContinueOnError)
	f.add(flags, func(*bfc.Dimension) bool { return true })
	for _, c := range []struct {
		flag, text, want string // "" for an error
	}{
		{"growth", "double", "double"}, {"growth", "step:8MiB", "step:8388608"}, {"growth", "step:1B", "step:1"}, {"growth", "needed", "needed"},
		{"growth", "step:0", ""}, {"growth", "step", ""}, {"growth", "step:-1", ""}, {"growth", "slow", ""},
		{"split", "classic", "classic"}, {"split", "always", "always"}, {"split", "256B", "always"}, {"split", "1MiB", "1048576"},
		{"split", "0", ""}, {"split", "-1", ""}, {"split", "never", ""},
		{"trim", "never", "never"}, {"trim", "iteration", "iteration"}, {"trim", "pressure", "pressure"}, {"trim", "idle:1.5s", "idle:1500000000"},
		{"trim", "idle", ""}, {"trim", "idle:0s", ""}, {"trim", "idle:5", ""}, {"trim", "always", ""},
		{"placement", "best-fit", "best-fit"}, {"placement", "planned", "planned"}, {"placement", "", ""}, {"placement", "first-fit", ""},
		{"small-arenas", "1MiB", "1048576"}, {"small-arenas", "0", "0"}, {"headroom", "3GiB", "3221225472"}, {"handle", "x", ""},
	} {
		before, err := f.policy()
		if err != nil {
			t.Fatal(err)
		}
		err = flags.Set(c.flag, c.text)
		after, _ := f.policy()
		d := bfc.DimensionNamed(c.flag)
		want := c.want
		if want == "" {
			want = d.Text(&before, bfc.Plain) // a wrong value changes nothing
		}
		if (err != nil) != (c.want == "") || d.Text(&after, bfc.Plain) != want {
			t.Errorf("--%s %q: error %v, then %q, want %q", c.flag, c.text, err, d.Text(&after, bfc.Plain), want)
		}
	}
}

// A flag overrides the preset, whichever comes first.
func TestPresetFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // as the hook reads it, "" for an error
	}{
		{nil, "growth=double,split=classic,small=0,trim=never,placement=best-fit,headroom=2147483648,limit=0,handle=0"},
		{[]string{"--preset", "classic"}, "growth=double,split=classic,small=0,trim=never,placement=best-fit,headroom=2147483648,limit=0,handle=0"},
		{[]string{"--preset", "compact"}, "growth=pages,split=always,small=0,trim=never,placement=planned,headroom=2147483648,limit=0,handle=0"},
		{[]string{"--preset", "compact", "--trim", "iteration"}, "growth=pages,split=always,small=0,trim=iteration,placement=planned,headroom=2147483648,limit=0,handle=0"},
		{[]string{"--growth", "double", "--headroom", "0", "--preset", "compact"}, "growth=double,split=always,small=0,trim=never,placement=planned,headroom=0,limit=0,handle=0"},
		{[]string{"--preset", "tight"}, ""},
	} {
		var f policyFlags
		flags := pflag.NewFlagSet("record", pflag.ContinueOnError)
		f.add(flags, func(*bfc.Dimension) bool { return true })
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		p, err := f.policy()
		if c.want == "" {
			if err == nil || err.Error() != `--preset: unknown preset "tight": use classic or compact` {
				t.Errorf("%v: error %v", c.args, err)
			}
		} else if err != nil || p.HookOptions() != c.want {
			t.Errorf("%v: %s, %v, want %s", c.args, p.HookOptions(), err, c.want)
		}
	}
}

// tune tries the presets with growth pages under other handles, unless --handle says which.
func TestTunedPolicies(t *testing.T) {
	other := []uint64{0, 2 << 20, 8 << 20, 16 << 20, 32 << 20}
	for _, c := range []struct {
		args    []string
		count   int
		handles []uint64 // of the policies that are compact but for the handle
	}{
		{nil, 4*2*2*2*2 + 4, other},
		{[]string{"--preset", "compact"}, 5, other},
		{[]string{"--preset", "classic"}, 1, nil},
		{[]string{"--growth", "double,needed"}, 2 * 2 * 2 * 2 * 2, nil},
		{[]string{"--growth", "pages", "--handle", "4MiB,64MiB"}, 2 * 2 * 2 * 2 * 2, []uint64{4 << 20, 64 << 20}},
		{[]string{"--preset", "compact", "--handle", "64MiB"}, 1, []uint64{64 << 20}},
	} {
		var f tuneFlags
		flags := pflag.NewFlagSet("tune", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		policies, err := f.policies()
		if err != nil {
			t.Fatal(err)
		}
		var handles []uint64
		for _, p := range policies {
			like := p
			if like.Handle = 0; like == compact {
				handles = append(handles, p.Handle)
			}
		}
		if len(policies) != c.count || !slices.Equal(handles, c.handles) {
			t.Errorf("%v: %d policies, compact with handles %d, want %d and %d", c.args, len(policies), handles, c.count, c.handles)
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
		{"kv --step-time x", `--step-time: duration "x" is not a number with a unit:`},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(&stdout, &stderr, strings.Fields(test.args)); code != exit.Usage || !strings.HasPrefix(stderr.String(), "memprof: "+test.want) {
			t.Errorf("memprof %s: exit code %d: %s\nwant %s", test.args, code, stderr.String(), test.want)
		}
	}
}
