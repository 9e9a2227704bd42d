package reporttest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// HostileName tries to move the cursor, recolour the screen, break out of tables and markup, and
// fill the screen.
var HostileName = "\x1b[31m\x1b[2J<script>alert(1)</script>|`*_&@all\r\n\x00\x07\u202egnp.exe\u2028\xff" + strings.Repeat("層.attn", 40)

// Update is the flag -update of tests that import this package.
var Update = flag.Bool("update", false, "rewrite the golden files")

// Golden compares with testdata/NAME, or writes it with -update.
func Golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *Update {
		assert.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	assert.NoError(t, err)
	assert.That(t, bytes.Equal(want, got), "%s differs (-want +got); go test -update rewrites it:\n%s", path, cmp.Diff(string(want), string(got)))
}

// Explored is all that a page shows of the events that each source gives again; exact says that it has every event.
func Explored(t testing.TB, source func() trace.Source, opt analysis.Options, exact bool) *analysis.Result {
	t.Helper()
	opt.Explore = true
	result, err := analysis.Run(source(), opt)
	assert.NoError(t, err)
	var spans []keyframes.Span
	if exact {
		spans = []keyframes.Span{{To: 1 << 40}}
	}
	assert.NoError(t, result.Explore(source(), opt, spans))
	return result
}

func SVG(t *testing.T, f figure.Figure) string {
	t.Helper()
	var out bytes.Buffer
	assert.NoError(t, f.SVG(&out))
	return out.String()
}

// CheckSafe fails on what may not reach a terminal or a page: control characters other than the
// newline, marks that reorder text, invalid UTF-8, and numbers that are none.
func CheckSafe(t *testing.T, text string) {
	t.Helper()
	for i, r := range text {
		if r == unicode.ReplacementChar || r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Fatalf("unsafe %U at %d: %q", r, i, text[max(0, i-20):min(i+20, len(text))])
		}
	}
	assert.Equal(t, regexp.MustCompile(`NaN|[+-]?Inf\b|%!|<nil>`).FindString(text), "", "the text")
}

// Whole returns the device with every subject that a pass makes. Those that were nil say that nothing happened.
func Whole(d analysis.DeviceResult) analysis.DeviceResult {
	orNew(&d.Memory, analysis.Memory{Chunks: &analysis.Chunks{}})
	orNew(&d.Failures, analysis.Failures{})
	orNew(&d.Growing, analysis.Growing{})
	orNew(&d.OtherLibraries, accounting.OtherLibraries{})
	orNew(&d.Held, attribution.Result{})
	orNew(&d.Leak, iterations.Leak{Verdict: iterations.TooShort})
	return d
}

func orNew[S any](subject **S, empty S) {
	if *subject == nil {
		*subject = &empty
	}
}
