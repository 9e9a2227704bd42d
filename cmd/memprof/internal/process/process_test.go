package process

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestFindCommand(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(first, "plain"):   0o644,
		filepath.Join(first, "both"):    0o644,
		filepath.Join(second, "both"):   0o755,
		filepath.Join(second, "second"): 0o755,
	} {
		assert.NoError(t, os.WriteFile(path, nil, mode))
	}
	assert.NoError(t, os.Mkdir(filepath.Join(first, "folder"), 0o755))
	t.Setenv("PATH", first+":"+second)
	tests := []struct {
		name, want string
		code       int
	}{
		{"second", filepath.Join(second, "second"), 0},
		{"both", filepath.Join(second, "both"), 0}, // what cannot be executed is passed over
		{"plain", "", 126},
		{"folder", "", 126},
		{"nothing", "", 127},
		{filepath.Join(second, "both"), filepath.Join(second, "both"), 0},
		{filepath.Join(first, "plain"), "", 126},
		{filepath.Join(first, "plain", "below"), "", 127},
		{filepath.Join(first, "nothing"), "", 127},
	}
	for _, test := range tests {
		got, err := FindCommand(test.name)
		var coded *exit.Error
		switch {
		case test.code == 0 && (err != nil || got != test.want):
			t.Errorf("FindCommand(%q) = %q, %v; want %q", test.name, got, err, test.want)
		case test.code != 0 && (!errors.As(err, &coded) || coded.Code != test.code):
			t.Errorf("FindCommand(%q) = %q, %v; want exit code %d", test.name, got, err, test.code)
		}
	}
}
