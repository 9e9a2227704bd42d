package hooks

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestPath(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	file := filepath.Join(inner, "file")
	assert.NoError(t, os.Mkdir(inner, 0o755))
	assert.NoError(t, os.WriteFile(file, nil, 0o644))
	check := func(what string, good bool, groups ...int) {
		t.Helper()
		for _, err := range []error{Trusted(file, groups...), treeOf(inner, groups)} {
			assert.That(t, (err == nil) == good && (err == nil || errors.Is(err, ErrOthers)), "%s: %v, want trusted %v", what, err, good)
		}
	}
	chmod := func(path string, mode os.FileMode) {
		t.Helper()
		assert.NoError(t, os.Chmod(path, mode))
	}
	check("mine alone", true)
	chmod(file, 0o664)
	check("writable for a group", false)
	check("writable for a group that is trusted", true, os.Getegid())
	chmod(file, 0o646)
	check("writable for all", false, os.Getegid())
	chmod(file, 0o644)
	chmod(dir, 0o777)
	check("below what is writable for all", false)
	chmod(dir, 0o777|os.ModeSticky)
	check("below a sticky directory", true)
	chmod(dir, 0o755)
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	for _, path := range []string{file, inner, dir} {
		assert.NoError(t, os.Chown(path, 65534, -1))
		check(path+" belongs to somebody else", false)
		assert.NoError(t, os.Chown(path, 0, -1))
	}
}

// treeOf is TrustedTree, which trusts no group, where none is.
func treeOf(dir string, groups []int) error {
	if groups != nil {
		return Trusted(filepath.Join(dir, "file"), groups...)
	}
	return TrustedTree(dir)
}

func TestMissing(t *testing.T) {
	err := Trusted(filepath.Join(t.TempDir(), "missing"))
	assert.That(t, errors.Is(err, os.ErrNotExist), "a file that is not there: %v", err)
}
