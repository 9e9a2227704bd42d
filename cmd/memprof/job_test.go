package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestFindCommand(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(first, "plain"):   0o644,
		filepath.Join(first, "both"):    0o644,
		filepath.Join(second, "both"):   0o755,
		filepath.Join(second, "second"): 0o755,
	} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(first, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
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
		got, err := findCommand(test.name)
		var exit *exitError
		switch {
		case test.code == 0 && (err != nil || got != test.want):
			t.Errorf("findCommand(%q) = %q, %v; want %q", test.name, got, err, test.want)
		case test.code != 0 && (!errors.As(err, &exit) || exit.code != test.code):
			t.Errorf("findCommand(%q) = %q, %v; want exit code %d", test.name, got, err, test.code)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{
		"run-1/x.parquet": "run-1/x.parquet", "a b": "'a b'", "": "''", "it's": `'it'\''s'`, "*": "'*'",
	} {
		if got := shellQuote(word); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", word, got, want)
		}
	}
}

func TestCounted(t *testing.T) {
	tests := []struct {
		n    int64
		noun string
		want string
	}{
		{0, "event", "0 events"}, {1, "event", "1 event"}, {999, "event", "999 events"}, {1000, "event", "1,000 events"},
		{1234567, "event", "1,234,567 events"}, {1, "process", "1 process"}, {2, "process", "2 processes"},
	}
	for _, test := range tests {
		if got := counted(test.n, test.noun); got != test.want {
			t.Errorf("counted(%d, %q) = %q, want %q", test.n, test.noun, got, test.want)
		}
	}
}
