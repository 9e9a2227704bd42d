package doctor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// program64 is the start of a 64-bit x86 program that names a loader, unless it is empty.
func program64(t *testing.T, loader string) []byte {
	t.Helper()
	var out bytes.Buffer
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Shentsize: 64,
	}
	if loader != "" {
		header.Phnum = 1
	}
	assert.NoError(t, binary.Write(&out, binary.LittleEndian, header))
	if loader == "" {
		return out.Bytes()
	}
	segment := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 120, Filesz: uint64(len(loader) + 1), Memsz: uint64(len(loader) + 1)}
	assert.NoError(t, binary.Write(&out, binary.LittleEndian, segment))
	out.WriteString(loader + "\x00")
	return out.Bytes()
}

func program32(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	err := binary.Write(&out, binary.LittleEndian, elf.Header32{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT), Ehsize: 52, Phentsize: 32, Shentsize: 40,
	})
	assert.NoError(t, err)
	return out.Bytes()
}

func TestExamineCommand(t *testing.T) {
	const glibc = "/lib64/ld-linux-x86-64.so.2"
	dir := t.TempDir()
	programs := map[string][]byte{
		"job": program64(t, glibc), "static": program64(t, ""), "musl": program64(t, "/lib/ld-musl-x86_64.so.1"), "old": program32(t),
		"python3": program64(t, glibc), "python3.12": program64(t, glibc), "env": program64(t, glibc), "nice": program64(t, glibc),
		"bash": program64(t, glibc), "timeout": program64(t, glibc), "sudo": program64(t, glibc), "docker": program64(t, glibc),
		"words":    []byte("just words\n"),
		"empty":    {},
		"torchrun": []byte("#!" + filepath.Join(dir, "python3.12") + "\nimport torch\n"),
		"isolated": []byte("#! " + filepath.Join(dir, "python3") + " -Is \nimport torch\n"),
		"split":    []byte("#!" + filepath.Join(dir, "env") + " -S python3 -E\nimport torch\n"),
		"run.sh":   []byte("#!" + filepath.Join(dir, "bash") + "\n./job\n"),
		"lost":     []byte("#!/no/such/interpreter\n"),
		"circle":   []byte("#!" + filepath.Join(dir, "circle") + "\n"),
	}
	for name, content := range programs {
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o755))
	}
	t.Setenv("PATH", dir)
	tests := []struct {
		command, want string // Health, and the start of the detail; several separated by |
		python        string
	}{
		{"job --flag", "ok job: nothing prevents recording it", ""},
		{"run.sh", "ok run.sh → bash: nothing prevents recording it; commands that bash starts were not examined", ""},
		{"python3 train.py -I", "ok python3: nothing", "python3"},
		{"python3 -u -m train -E", "ok python3: nothing", "python3"},
		{"python3 -c pass -S", "ok python3: nothing", "python3"},
		{"python3 -I train.py", "warn python3 -I ignores PYTHONPATH", "python3"},
		{"python3.12 -uES train.py", "warn python3.12 -E ignores|warn python3.12 -S skips site", "python3.12"},
		{"python3 -W ignore -X dev -S x", "warn python3 -S skips", "python3"},
		{"python3 -WI -XE x", "ok python3: nothing", "python3"},
		{"python3 -W -I x", "ok python3: nothing", "python3"}, // -I is the filter
		{"torchrun --nproc 2 train.py", "ok torchrun → python3.12: nothing", filepath.Join(dir, "python3.12")},
		{"isolated", "warn python3 -I ignores", filepath.Join(dir, "python3")},
		{"split", "warn python3 -E ignores", "python3"},
		{"env A=1 python3 -I x", "warn python3 -I ignores", "python3"},
		{"env -i job", "fail env -i empties the environment", ""},
		{"env -u LD_PRELOAD job", "fail env -u LD_PRELOAD removes the variable that loads the hook", ""},
		{"env LD_PRELOAD=/x.so job", "fail env LD_PRELOAD=… replaces the variable that loads the hook", ""},
		{"env PYTHONPATH=/x python3 x", "warn env PYTHONPATH=… replaces the variable that loads the torch shim", "python3"},
		{"nice -n 5 timeout 10 python3 -S x", "warn python3 -S skips", "python3"},
		{"static", "warn " + dir + "/static is statically linked", ""},
		{"old", "fail " + dir + "/old is a program for EM_386, ELFCLASS32", ""},
		{"musl", "fail " + dir + "/musl uses musl's loader", ""},
		{"words", "fail " + dir + "/words: neither a program nor a script", ""},
		{"empty", "fail " + dir + "/empty: neither a program nor a script", ""},
		{"sudo job", "fail sudo removes LD_PRELOAD", ""},
		{"docker run job", "fail docker starts the job where the hook is not installed", ""},
		{"lost", "fail /no/such/interpreter: command not found", ""},
		{"nothing", "fail nothing: command not found", ""},
		{"circle", "ok circle → circle", ""},
	}
	for _, test := range tests {
		look := Look{}
		look.command(strings.Fields(test.command), 0)
		findings := look.conclude()
		wanted := strings.Split(test.want, "|")
		if len(findings) != len(wanted) {
			t.Errorf("%s: %+v, want %d", test.command, findings, len(wanted))
			continue
		}
		for i, f := range findings {
			got := string(f.Health) + " " + f.Detail
			assert.That(t, strings.HasPrefix(got, wanted[i]), "%s: %q, want %q…", test.command, got, wanted[i])
			assert.That(t, f.Health == OK || f.Remedy != "" || strings.Contains(test.want, "neither"), "%s: no remedy for %q", test.command, f.Detail)
		}
		assert.Equal(t, look.Python, test.python, "%s: Python", test.command)
	}
}

func TestLoadsNothing(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("the loader trusts what root starts")
	}
	path := filepath.Join(t.TempDir(), "job")
	assert.NoError(t, os.WriteFile(path, nil, 0o755))
	for mode, want := range map[os.FileMode]bool{0o755: false, 0o755 | os.ModeSetuid: true, 0o755 | os.ModeSetgid: true} {
		assert.NoError(t, os.Chmod(path, mode))
		file, err := os.Open(path)
		assert.NoError(t, err)
		assert.Equal(t, loadsNothing(file), want, "mode %v", mode)
		file.Close()
	}
}

func TestExamineEnvironment(t *testing.T) {
	interposer, err := filepath.Abs("../../../../hooks/dist/sim/libcuda.so.1")
	assert.NoError(t, err)
	tests := []struct {
		variable string // NAME=value
		check    string
		health   Health
		remedy   string // part of it
	}{
		{"A=b", "LD_PRELOAD", OK, ""},
		{"LD_PRELOAD=/usr/lib/libjemalloc.so.2:/usr/lib/libtcmalloc.so.4", "LD_PRELOAD", OK, ""},
		{"LD_PRELOAD=/c/libmemprof.so", "LD_PRELOAD", Warn, "itself being recorded"},
		{"LD_PRELOAD=/usr/lib/libjemalloc.so.2 " + interposer, "LD_PRELOAD", Warn, "libcuda.so.1 defines cu"},
		{"A=b", "torch settings", OK, ""},
		{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "torch settings", Warn, "expandable_segments: no effect on memprof's allocator"},
		{"PYTORCH_ALLOC_CONF=backend:native,roundup_power2_divisions:[256:1,512:2,>:8],pinned_num_register_threads:4,max_split_size_mb:64", "torch settings", Warn,
			"backend, roundup_power2_divisions, max_split_size_mb: no effect"},
		{"PYTORCH_CUDA_ALLOC_CONF=pinned_use_cuda_host_register:True", "torch settings", OK, ""},
		{"PYTORCH_NO_CUDA_MEMORY_CACHING=1", "torch settings", Warn, "PYTORCH_NO_CUDA_MEMORY_CACHING has no effect"},
		{"A=b", "python", OK, ""},
		{"PYTHONSAFEPATH=1", "python", OK, ""},
		{"PYTHONNOUSERSITE=1", "python", OK, ""},
		{"PYTHONHOME=/opt/python", "python", Warn, "unset it unless"},
		{"CUDA_LAUNCH_BLOCKING=1", "CUDA settings", Warn, "times are longer"},
		{"CUDA_VISIBLE_DEVICES=1,2", "visible GPUs", OK, ""},
		{"CUDA_VISIBLE_DEVICES=", "visible GPUs", Warn, "every GPU is hidden"},
	}
	for _, test := range tests {
		found := false
		for _, f := range environmentOf([]string{test.variable}) {
			if f.Check != test.check {
				assert.That(t, f.Health == OK, "%s: also %+v", test.variable, f)
				continue
			}
			found = true
			assert.That(t, f.Health == test.health && strings.Contains(f.Remedy, test.remedy) && (test.remedy == "") == (f.Remedy == ""),
				"%s: %+v, want %s and %q", test.variable, f, test.health, test.remedy)
		}
		assert.That(t, found, "%s: nothing about %s", test.variable, test.check)
	}
	for _, f := range environmentOf([]string{"CUDA_LAUNCH_BLOCKING=0"}) {
		assert.That(t, f.Health == OK, "CUDA_LAUNCH_BLOCKING=0: %+v", f)
	}
}

func TestDescribeShim(t *testing.T) {
	dir := t.TempDir()
	built := filepath.Join(dir, "shim-2.11.0-abc.so")
	missing := filepath.Join(dir, "shim-2.11.0-def.so")
	assert.NoError(t, os.WriteFile(built, nil, 0o644))
	works := func() (string, error) { return missing, nil }
	fails := func() (string, error) { return "", errors.New("shim.cpp:5: error: no such type") }
	tests := []struct {
		shims []string
		build func() (string, error)
		want  Finding
	}{
		{[]string{missing, built}, fails, Finding{Check: "torch shim", Health: OK, Detail: "built: " + built}},
		{[]string{missing}, works, Finding{Check: "torch shim", Health: OK, Detail: "built now: " + missing}},
		{[]string{missing}, fails, Finding{
			Check: "torch shim", Health: Warn, Detail: "none for torch 2.11.0: shim.cpp:5: error: no such type",
			Remedy: "torch's plug-in allocator is recorded in its place, without history; run `memprof doctor hooks build` where the shim compiles, and use record --shim FILE",
		}},
	}
	for _, test := range tests {
		assert.Diff(t, test.want, describeShim(&installedTorch{version: "2.11.0", shims: test.shims, withoutShim: "history"}, test.build), "%v", test.shims)
	}
}

func TestDescribeTorch(t *testing.T) {
	const head = "/usr/bin/python3\n%s\nshim-1.so\nshim-0.so\nmemory history\n"
	tests := []struct {
		version, lacked string
		want            Finding
	}{
		{"2.11.0+cu130", "", Finding{Check: "torch", Health: OK, Detail: "2.11.0+cu130 of /usr/bin/python3"}},
		{"2.6.0", "", Finding{
			Check: "torch", Health: Warn, Detail: "2.6.0 of /usr/bin/python3",
			Remedy: "memprof was run with torch 2.11.0; the shim has all of this one's allocator interface",
		}},
		{"2.14.1", "allocateWithAddress (tensors resized to an address)\nnew (not known to this memprof)\n", Finding{
			Check: "torch", Health: Warn, Detail: "2.14.1 of /usr/bin/python3",
			Remedy: "memprof was run with torch 2.11.0; of this one's allocator interface the shim lacks allocateWithAddress (tensors resized to an address), new (not known to this memprof)",
		}},
	}
	for _, test := range tests {
		found := readTorch(fmt.Sprintf(head, test.version) + test.lacked)
		assert.Diff(t, test.want, describeTorch(found), "%s", test.version)
		assert.Diff(t, []string{"shim-1.so", "shim-0.so"}, found.shims, "%s: shims", test.version)
		assert.That(t, found.withoutShim == "memory history", "%s: without a shim %q", test.version, found.withoutShim)
	}
	found := readTorch("/usr/bin/python3\n")
	assert.That(t, found == nil, "no torch: %+v", found)
}
