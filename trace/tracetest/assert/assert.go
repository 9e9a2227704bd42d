// Package assert holds what most tests ask: that there is no error, and that a value is the one wanted. It knows nothing of memprof,
// so that tests of every package may import it.
package assert

import (
	"fmt"

	"github.com/google/go-cmp/cmp"
)

// T is a *testing.T or *rapid.T whose test goes on after a failure.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

type fatal interface {
	Helper()
	Fatal(args ...any)
}

// NoError ends the test if err is not nil.
func NoError(t fatal, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Equal fails the test if got is not want. What the value is stands in front: a format and its arguments, or nothing.
func Equal[V comparable](t T, got, want V, what ...any) {
	if got != want {
		t.Helper()
		t.Errorf("%sgot %v, want %v", prefix(what), got, want)
	}
}

// That fails the test, and says what of it does not hold, unless holds.
func That(t T, holds bool, format string, args ...any) {
	if !holds {
		t.Helper()
		t.Errorf(format, args...)
	}
}

// Must ends the test like that: what follows needs it.
func Must(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, holds bool, format string, args ...any,
) {
	if !holds {
		t.Helper()
		t.Fatalf(format, args...)
	}
}

// Diff fails the test if cmp.Diff finds a difference between want and got. Its options stand in front of what the value is.
func Diff(t T, want, got any, what ...any) {
	var options cmp.Options
	for len(what) > 0 {
		option, ok := what[0].(cmp.Option)
		if !ok {
			break
		}
		options, what = append(options, option), what[1:]
	}
	if diff := cmp.Diff(want, got, options); diff != "" {
		t.Helper()
		t.Errorf("%s(-want +got):\n%s", prefix(what), diff)
	}
}

func prefix(what []any) string {
	if len(what) == 0 {
		return ""
	}
	return fmt.Sprintf(what[0].(string), what[1:]...) + ": "
}
