package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestEarlierRecordings keeps the promise of the release notes: what an earlier memprof recorded is read, with the numbers that
// it had, and verifies. The recordings of samples/ were made by earlier commits, and are not made again for a new version.
func TestEarlierRecordings(t *testing.T) {
	for _, want := range []struct {
		dir, version                string
		allocs, requested, reserved int64 // requests of the job, and the greatest bytes, as the version that recorded them reported
	}{
		{"alexnet", "0136265", 1635, 1069789047, 2162163712},
		{"gpt2", "0136265", 26927, 13800012808, 17179869184},
		{"resnet50", "0136265", 14104, 6567370648, 8587837440},
	} {
		path := filepath.Join("../../samples", want.dir)
		if version := recordedBy(t, path); version != want.version {
			t.Errorf("%s was recorded by %s, not by %s: keep the recording of the earlier version beside a new one", want.dir, version, want.version)
		}
		var out, errs bytes.Buffer
		if code := run(&out, &errs, []string{"report", "--json", path}); code != exit.Fine {
			t.Errorf("report %s: exit %d\n%s", want.dir, code, &errs)
			continue
		}
		var report struct {
			Processes []struct {
				Devices []struct {
					Allocs    int64 `json:"allocs"`
					Requested int64 `json:"max_requested"`
					Reserved  int64 `json:"max_reserved"`
				}
			}
		}
		assert.NoError(t, json.Unmarshal(out.Bytes(), &report))
		d := report.Processes[0].Devices[0]
		assert.That(t, d.Allocs == want.allocs && d.Requested == want.requested && d.Reserved == want.reserved, "%s: %+v, want %+v", want.dir, d, want)
	}
}

// TestEarlierRecordingsVerify replays them all, those of the model zoo too.
func TestEarlierRecordingsVerify(t *testing.T) {
	paths, err := filepath.Glob("../../samples/*/run.json")
	assert.NoError(t, err)
	zoo, err := filepath.Glob("../../samples/zoo/*/run.json")
	assert.NoError(t, err)
	assert.Must(t, len(paths) >= 3 && len(zoo) >= 17, "%d recordings and %d of the zoo: some are missing", len(paths), len(zoo))
	for _, path := range append(paths, zoo...) {
		dir := filepath.Dir(path)
		var out, errs bytes.Buffer
		if code := run(&out, &errs, []string{"verify", dir}); code != exit.Fine {
			t.Errorf("verify %s, recorded by %s: exit %d\n%s%s", dir, recordedBy(t, dir), code, &out, &errs)
		}
	}
}

func recordedBy(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run.json"))
	assert.NoError(t, err)
	var info struct {
		Version string `json:"memprof_version"`
	}
	assert.NoError(t, json.Unmarshal(text, &info))
	return info.Version
}
