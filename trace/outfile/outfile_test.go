package outfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func contains(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s: %q, %v, want %q", path, got, err, want)
	}
}

// A link in the place of the output is replaced; what it leads to is not touched.
func TestWriteReplacesLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(elsewhere, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "out")
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, Private, text("new")); err != nil {
		t.Fatal(err)
	}
	contains(t, elsewhere, "precious")
	contains(t, path, "new")
	stat, err := os.Lstat(path)
	if err != nil || stat.Mode() != 0o600 {
		t.Errorf("mode %v, %v, want a regular file of mode 0600", stat.Mode(), err)
	}
}

// What is there stays until the new file is complete, and nothing is left of one that is not.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	if err := Write(path, Private, text("old")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Write(path, Private, func(w io.Writer) error {
		if err := text("ne")(w); err != nil {
			t.Fatal(err)
		}
		contains(t, path, "old")
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	contains(t, path, "old")
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v, want out alone", left, err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(pipe, "out"), Private, text("")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a pipe in the place of the directory: %v", err)
	}
	if err := Write(filepath.Join(dir, "no", "out"), Private, text("")); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is missing: %v", err)
	}
}

func TestCreate(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(elsewhere, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := Create(root, "out")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	contains(t, elsewhere, "precious")
	contains(t, filepath.Join(dir, "out"), "new")
	if _, err := Create(root, "../out"); err == nil {
		t.Error("a name that leaves the directory was taken")
	}
}

func TestPossible(t *testing.T) {
	dir := t.TempDir()
	if err := Possible(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, dir := range []string{filepath.Join(dir, "missing"), "/proc"} {
		if err := Possible(dir); err == nil {
			t.Errorf("a file could be made in %s", dir)
		}
	}
}
