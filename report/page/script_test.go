package page

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestMain(m *testing.M) { reporttest.Main(m) }

// Scripts are correct as far as a parser can tell.
func TestPageScripts(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine: the scripts are not parsed")
	}
	for page := range scripts {
		code, err := script(page)
		assert.NoError(t, err)
		at := strings.IndexFunc(code, func(c rune) bool { return c >= utf8.RuneSelf })
		if at >= 0 {
			t.Errorf("%s: %.40q is not ASCII", page, code[at:])
		}
		cmd := exec.Command(node, "--check", "-")
		cmd.Stdin = strings.NewReader(code)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", page, err, out)
		}
	}
}

// A name like a property that every object has is a name like any other, and has a colour of its own.
func TestPageNames(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine: the scripts are not run")
	}
	code, err := content.ReadFile("html/device.js")
	assert.NoError(t, err)
	const before = `const theme = { colors: { series: ['s0', 's1', 's2', 's3', 's4', 's5', 's6', 's7', 's8', 's9'], grid: 'grid' } };
const mix = (color) => color, hashOf = () => 0.5;
`
	const after = `
const allocations = { groups: ['constructor', '__proto__', 'toString', 'weights'].map((name, i) => ({ origin: i, size: 1, requested: 4 - i, name })) };
const view = { allocations, coloring: 'category', colorName: (origin) => allocations.groups[origin].name };
for (const name of ['forward', 'other', 'constructor', '__proto__', 'toString', 'mine']) console.log(name, DeviceView.prototype.phaseColor(name));
const space = SPACE;
const assigned = space.prototype.assign.call(view);
for (const group of allocations.groups) console.log(group.name, assigned.of.get(group.name));
`
	cmd := exec.Command(node, "-")
	cmd.Stdin = strings.NewReader(before + string(code) + strings.Replace(after, "SPACE", classWith(t, string(code), "  assign() {"), 1))
	out, err := cmd.CombinedOutput()
	assert.Must(t, err == nil, "%v\n%s", err, out)
	want := "forward s0\nother grid\nconstructor s6\n__proto__ s6\ntoString s6\nmine s6\n" +
		"constructor 9\n__proto__ 9\ntoString 9\nweights 0\n"
	assert.Diff(t, want, string(out))
}

// classWith is the name of the class of a script in which a line stands.
func classWith(t *testing.T, code, line string) string {
	t.Helper()
	before, _, found := strings.Cut(code, line)
	at := strings.LastIndex(before, "\nclass ")
	assert.Must(t, found && at >= 0, "no class with %q", line)
	return strings.Fields(before[at:])[1]
}
