package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestAnother wants a package named memprof that is not ours to be found wherever the job's Python would import it from.
func TestAnother(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{
		"env/bin/python3", "env/lib/python3.12/site-packages/memprof/__init__.py", "own/bin/python3",
		"own/lib/python3.12/site-packages/memprof/__init__.py", "own/lib/python3.12/site-packages/memprof/_hook.py",
		"job/train.py", "job/memprof.py", "clean/train.py", "path/memprof/__init__.py", "clean/memprof/readme",
	} {
		path := filepath.Join(dir, name)
		assert.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NoError(t, os.WriteFile(path, nil, 0o755))
	}
	for _, test := range []struct{ python, args, path, want string }{
		{"own/bin/python3", "clean/train.py", "", ""},
		{"own/bin/python3", "-u -W ignore job/train.py --lr 1", "", "job/memprof.py"},
		{"own/bin/python3", "clean/train.py job/train.py", "path", "path/memprof/__init__.py"},
		{"env/bin/python3", "clean/train.py", "", "env/lib/python3.12/site-packages/memprof/__init__.py"},
		{"own/bin/python3", "-m train", "", ""},
		{"own/bin/python3", "-c pass job/train.py", "", ""},
	} {
		t.Setenv("PYTHONPATH", test.path)
		look := Look{Python: filepath.Join(dir, test.python), scripts: scriptsFolder(strings.Fields(test.args))}
		found, ok := look.Another()
		if ok != (test.want != "") || ok && (!strings.HasSuffix(found.Detail, test.want+" is another package named memprof") || found.Health != Warn || found.Remedy == "") {
			t.Errorf("%s %s: %v %+v, want %q", test.python, test.args, ok, found, test.want)
		}
	}
	assert.NoError(t, os.WriteFile("memprof.py", nil, 0o644))
	look := Look{Python: filepath.Join(dir, "own/bin/python3"), scripts: scriptsFolder([]string{"-m", "train"})}
	_, ok := look.Another()
	assert.That(t, ok, "with -m, a module in the current folder was not found")
	if _, ok := (&Look{scripts: "."}).Another(); ok {
		t.Error("a job without Python was warned")
	}
}
