package outfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
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
	assert.That(t, err == nil && string(got) == want, "%s: %q, %v, want %q", path, got, err, want)
}

// A link in the place of the output is replaced; what it leads to is not touched.
func TestWriteReplacesLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	assert.NoError(t, os.WriteFile(elsewhere, []byte("precious"), 0o600))
	path := filepath.Join(dir, "out")
	assert.NoError(t, os.Symlink(elsewhere, path))
	assert.NoError(t, Write(path, Private, text("new")))
	contains(t, elsewhere, "precious")
	contains(t, path, "new")
	stat, err := os.Lstat(path)
	assert.That(t, err == nil && stat.Mode() == 0o600, "mode %v, %v, want a regular file of mode 0600", stat.Mode(), err)
}

// What is there stays until the new file is complete, and nothing is left of one that is not.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	assert.NoError(t, Write(path, Private, text("old")))
	broken := errors.New("broken")
	err := Write(path, Private, func(w io.Writer) error {
		assert.NoError(t, text("ne")(w))
		contains(t, path, "old")
		return broken
	})
	assert.That(t, errors.Is(err, broken), "error %v, want %v", err, broken)
	contains(t, path, "old")
	left, err := os.ReadDir(dir)
	assert.That(t, err == nil && len(left) == 1, "left behind: %v, %v, want out alone", left, err)
	pipe := filepath.Join(t.TempDir(), "pipe")
	assert.NoError(t, syscall.Mkfifo(pipe, 0o600))
	if err := Write(filepath.Join(pipe, "out"), Private, text("")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a pipe in the place of the directory: %v", err)
	}
	if err := Write(filepath.Join(dir, "no", "out"), Private, text("")); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is missing: %v", err)
	}
}

func TestCreate(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	assert.NoError(t, os.WriteFile(elsewhere, []byte("precious"), 0o600))
	assert.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "out")))
	root, err := os.OpenRoot(dir)
	assert.NoError(t, err)
	defer root.Close()
	f, err := Create(root, "out")
	assert.NoError(t, err)
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	assert.NoError(t, f.Close())
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
		err := Possible(dir)
		assert.That(t, err != nil, "a file could be made in %s", dir)
	}
}
