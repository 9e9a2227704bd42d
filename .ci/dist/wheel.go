package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
)

// described is what git describe prints of a commit after a tag: tag, number of commits, hash, and whether files differ.
var described = regexp.MustCompile(`^(\d+(?:\.\d+)*)(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// pythonVersion is a version as PEP 440 wants it: 1.2, 1.2.post5+gabc for a commit after a tag, 0+abc without a tag.
func pythonVersion(version string) string {
	if m := described.FindStringSubmatch(version); m != nil && strings.Contains(m[1], ".") {
		text, local := m[1], ""
		if m[2] != "" {
			text, local = text+".post"+m[2], "g"+m[3]
		}
		if m[4] != "" {
			local += ".dirty"
		}
		if local = strings.TrimPrefix(local, "."); local != "" {
			text += "+" + local
		}
		return text
	}
	return "0+" + strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(version), "."), ".")
}

// wheelName is the distribution's name; that of the package which it installs is memprof.
const wheelName = "gpu_memprof"

// wheel is the Python wheel. pip puts the binary itself among the environment's programs, so memprof starts without Python.
// `import memprof` marks scripts, and does nothing in a process that is not recorded. pytest finds the package's plugin by its entry
// point, whose name is the module's, so that -p memprof.pytest_plugin does not register it again. PyPI has another memprof, so the
// wheel is gpu_memprof. The platform is the oldest C library that the binary runs with: pip takes the wheel that fits where it runs.
func (r *release) wheel(platform string, a architecture, binary []byte) []byte {
	version := pythonVersion(r.version)
	info, data := wheelName+"-"+version+".dist-info/", wheelName+"-"+version+".data/"
	files := append([]file(nil), r.python...)
	if a.machine == "x86_64" && strings.HasPrefix(platform, "manylinux") {
		files = append(files, r.shims...)
	}
	files = append(files,
		file{data + "scripts/memprof", 0o755, binary},
		file{info + "LICENSE", 0o644, r.license},
		file{info + "METADATA", 0o644, fmt.Appendf(nil, "Metadata-Version: 2.1\nName: "+wheelName+"\nVersion: %s\n"+
			"Summary: Records where the GPU memory of a job goes\nRequires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n%s", version, r.readme)},
		file{info + "entry_points.txt", 0o644, []byte("[pytest11]\nmemprof.pytest_plugin = memprof.pytest_plugin\n")},
		file{info + "WHEEL", 0o644, fmt.Appendf(nil, "Wheel-Version: 1.0\nGenerator: memprof\nRoot-Is-Purelib: false\n"+
			"Tag: py3-none-%s_%s\n", platform, a.machine)},
	)
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	return zipped(r.at, append(files, file{info + "RECORD", 0o644, []byte(record.String())}))
}
