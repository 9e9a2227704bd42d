package hooks

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestPath(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	file := filepath.Join(inner, "file")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(what string, good bool, groups ...int) {
		t.Helper()
		for _, err := range []error{Trusted(file, groups...), treeOf(inner, groups)} {
			if (err == nil) != good || err != nil && !errors.Is(err, ErrOthers) {
				t.Errorf("%s: %v, want trusted %v", what, err, good)
			}
		}
	}
	chmod := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
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
		if err := os.Chown(path, 65534, -1); err != nil {
			t.Fatal(err)
		}
		check(path+" belongs to somebody else", false)
		if err := os.Chown(path, 0, -1); err != nil {
			t.Fatal(err)
		}
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
	if err := Trusted(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
