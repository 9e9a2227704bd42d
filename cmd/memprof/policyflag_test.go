package main

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestPolicyFlags(t *testing.T) {
	growth, split, trim, placement := new(growthFlag), new(splitFlag), new(trimFlag), new(placementFlag)
	for _, c := range []struct {
		flag       pflag.Value
		text, want string // "" for an error
	}{
		{growth, "double", "double"}, {growth, "step:8MiB", "step:8388608"}, {growth, "step:1", "step:1"}, {growth, "needed", "needed"},
		{growth, "step:0", ""}, {growth, "step", ""}, {growth, "step:-1", ""}, {growth, "slow", ""},
		{split, "classic", "classic"}, {split, "always", "always"}, {split, "256", "always"}, {split, "1MiB", "1048576"},
		{split, "0", ""}, {split, "-1", ""}, {split, "never", ""},
		{trim, "never", "never"}, {trim, "iteration", "iteration"}, {trim, "pressure", "pressure"}, {trim, "idle:1.5s", "idle:1500000000"},
		{trim, "idle", ""}, {trim, "idle:0s", ""}, {trim, "idle:5", ""}, {trim, "always", ""},
		{placement, "best-fit", "best-fit"}, {placement, "planned", "planned"}, {placement, "", ""}, {placement, "first-fit", ""},
	} {
		before := c.flag.String()
		err := c.flag.Set(c.text)
		want := c.want
		if want == "" {
			want = before // a wrong value changes nothing
		}
		if (err != nil) != (c.want == "") || c.flag.String() != want {
			t.Errorf("%s %q: error %v, then %q, want %q", c.flag.Type(), c.text, err, c.flag, want)
		}
	}
}
