package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestMain runs the tests where the command runs.
func TestMain(m *testing.M) {
	err := os.Chdir("../..")
	if err == nil {
		builds, err = os.MkdirTemp("", "memprof-builds-")
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(builds)
	os.Exit(code)
}

// version is that of the packages, between releases.
const version = "v1.2-3-gabcdef0"

var once map[string][]byte

// packed is what pack wrote the first time.
func packed(t *testing.T) map[string][]byte {
	t.Helper()
	if once == nil {
		once = pack(t)
	}
	return once
}

// pack runs the command on this test's binary, which stands for memprof's, and returns what it wrote by name.
func pack(t *testing.T) map[string][]byte {
	t.Helper()
	dir, out := t.TempDir(), t.TempDir()
	for _, a := range architectures {
		if err := os.MkdirAll(filepath.Join(dir, a.machine, "static"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(os.Args[0], filepath.Join(dir, a.machine, "memprof")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, a.machine, "static", "memprof"), []byte("static for "+a.machine), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	notes := filepath.Join(dir, "subjects")
	if err := os.WriteFile(notes, []byte("Say this\nSay that\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "shim-2.6-abi1.so"), []byte("a shim"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(version, 1_700_000_000, dir, notes, dir, out); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(out, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestPack wants all packages, the same ones each time, and sums that fit them.
func TestPack(t *testing.T) {
	first, again := packed(t), pack(t)
	want := []string{
		"RELEASE_NOTES.md", "SHA256SUMS",
		"gpu_memprof-1.2.post3+gabcdef0-py3-none-manylinux_2_28_aarch64.whl", "gpu_memprof-1.2.post3+gabcdef0-py3-none-manylinux_2_28_x86_64.whl",
		"gpu_memprof-1.2.post3+gabcdef0-py3-none-musllinux_1_1_aarch64.whl", "gpu_memprof-1.2.post3+gabcdef0-py3-none-musllinux_1_1_x86_64.whl",
		"memprof-1.2-3-gabcdef0-linux-aarch64-static.tar.gz", "memprof-1.2-3-gabcdef0-linux-aarch64.cdx.json", "memprof-1.2-3-gabcdef0-linux-aarch64.tar.gz",
		"memprof-1.2-3-gabcdef0-linux-x86_64-static.tar.gz", "memprof-1.2-3-gabcdef0-linux-x86_64.cdx.json", "memprof-1.2-3-gabcdef0-linux-x86_64.tar.gz",
		"memprof_1.2+3+gabcdef0_amd64.deb", "memprof_1.2+3+gabcdef0_arm64.deb",
	}
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Errorf("packed %q, want %q", got, want)
	}
	for name, data := range first {
		if !bytes.Equal(data, again[name]) {
			t.Errorf("%s differs when it is packed again", name)
		}
		sum := sha256.Sum256(data)
		if line := hex.EncodeToString(sum[:]) + "  " + name + "\n"; name != "SHA256SUMS" && !strings.Contains(string(first["SHA256SUMS"]), line) {
			t.Errorf("SHA256SUMS lacks %s", line)
		}
	}
	if notes := string(first["RELEASE_NOTES.md"]); !strings.Contains(notes, "# memprof 1.2-3-gabcdef0, 2023-11-14") || !strings.Contains(notes, "- Say this\n- Say that\n") {
		t.Errorf("release notes:\n%s", notes)
	}
}

// TestShims wants a shim where its binary format and its C library are: where Python looks for it (_shim.py).
func TestShims(t *testing.T) {
	for name, data := range packed(t) {
		if !strings.HasSuffix(name, ".whl") {
			continue
		}
		wheel, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		has := slices.ContainsFunc(wheel.File, func(f *zip.File) bool { return f.Name == "memprof/_shims/shim-2.6-abi1.so" })
		if has != strings.HasSuffix(name, "manylinux_2_28_x86_64.whl") {
			t.Errorf("%s has the shim: %v", name, has)
		}
	}
}

// TestBill wants the modules that go version -m lists.
func TestBill(t *testing.T) {
	bill := packed(t)["memprof-1.2-3-gabcdef0-linux-x86_64.cdx.json"]
	var parsed struct {
		BOMFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(bill, &parsed); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "version", "-m", os.Args[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Count(string(out), "\tdep\t")
	if parsed.BOMFormat != "CycloneDX" || len(parsed.Components) != deps+1 || parsed.Components[0].Name != "std" {
		t.Errorf("%s lists %d modules, go version -m %d and std", parsed.BOMFormat, len(parsed.Components), deps)
	}
}

// TestReplaced wants the module by its own name where a folder of the repository stands for it, and else what stands for it.
func TestReplaced(t *testing.T) {
	module := debug.Module{Path: "example.org/fonts", Version: "v1.2.3"}
	for _, test := range []struct {
		by   *debug.Module
		want string
	}{
		{nil, "pkg:golang/example.org/fonts@v1.2.3"},
		{&debug.Module{Path: "./report/figure/fonts", Version: "(devel)"}, "pkg:golang/example.org/fonts@v1.2.3"},
		{&debug.Module{Path: "example.org/fork", Version: "v2.0.0"}, "pkg:golang/example.org/fork@v2.0.0"},
	} {
		module.Replace = test.by
		if got := moduleOf(&module).PURL; got != test.want {
			t.Errorf("replaced by %v: %s, want %s", test.by, got, test.want)
		}
	}
}

// TestDeb wants dpkg to read the package.
func TestDeb(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb, which reads the package back, is on Debian and Ubuntu only")
	}
	deb := packed(t)["memprof_1.2+3+gabcdef0_amd64.deb"]
	path := filepath.Join(t.TempDir(), "memprof.deb")
	if err := os.WriteFile(path, deb, 0o600); err != nil {
		t.Fatal(err)
	}
	fields, err := exec.Command("dpkg-deb", "--field", path, "Package", "Version", "Architecture", "Depends").CombinedOutput()
	if want := "Package: memprof\nVersion: 1.2+3+gabcdef0\nArchitecture: amd64\nDepends: libc6 (>= 2.28)\n"; err != nil || string(fields) != want {
		t.Errorf("%v: %s", err, fields)
	}
	content, err := exec.Command("dpkg-deb", "--contents", path).CombinedOutput()
	if err != nil || !strings.Contains(string(content), "-rwxr-xr-x root/root") || !strings.Contains(string(content), "./usr/bin/memprof\n") {
		t.Errorf("%v: %s", err, content)
	}
}

// TestWheel wants a wheel whose RECORD has each file with its digest, the binary as a script, and the Python package.
func TestWheel(t *testing.T) {
	const name = "gpu_memprof-1.2.post3+gabcdef0"
	wheel := packed(t)[name+"-py3-none-manylinux_2_28_x86_64.whl"]
	r, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	for _, f := range r.File {
		opened, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
		content[f.Name] = string(data)
		if f.Name == name+".data/scripts/memprof" && f.Mode().Perm() != 0o755 {
			t.Errorf("the binary has mode %v", f.Mode())
		}
	}
	record := content[name+".dist-info/RECORD"]
	for file, data := range content {
		sum := sha256.Sum256([]byte(data))
		line := file + ",sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]) + ","
		if file == name+".dist-info/RECORD" {
			line = file + ",,"
		}
		if !strings.Contains(record, line) {
			t.Errorf("RECORD lacks %s", line)
		}
	}
	for _, file := range []string{"memprof/__init__.py", "memprof/kv.py", "memprof/pytest_plugin.py", "memprof.pth", name + ".data/scripts/memprof"} {
		if content[file] == "" {
			t.Errorf("the wheel lacks %s", file)
		}
	}
	if text := content[name+".dist-info/entry_points.txt"]; text != "[pytest11]\nmemprof.pytest_plugin = memprof.pytest_plugin\n" {
		t.Errorf("entry points: %s", text)
	}
	if content[name+".data/scripts/memprof"] == "static for x86_64" {
		t.Error("the wheel for glibc has the static binary")
	}
	if !strings.Contains(content[name+".dist-info/WHEEL"], "Tag: py3-none-manylinux_2_28_x86_64\n") {
		t.Errorf("WHEEL: %s", content[name+".dist-info/WHEEL"])
	}
}

func TestVersions(t *testing.T) {
	for _, test := range []struct{ version, python, debian string }{
		{"1.2", "1.2", "1.2"},
		{"1.2.3-14-gab12cd3", "1.2.3.post14+gab12cd3", "1.2.3+14+gab12cd3"},
		{"1.2-14-gab12cd3-dirty", "1.2.post14+gab12cd3.dirty", "1.2+14+gab12cd3+dirty"},
		{"1.2-dirty", "1.2+dirty", "1.2+dirty"},
		{"4ac1f9e", "0+4ac1f9e", "0+4ac1f9e"},
		{"4321567-dirty", "0+4321567.dirty", "0+4321567+dirty"},
	} {
		if python, debian := pythonVersion(test.version), debianVersion(test.version); python != test.python || debian != test.debian {
			t.Errorf("%s: %s and %s, want %s and %s", test.version, python, debian, test.python, test.debian)
		}
	}
}
