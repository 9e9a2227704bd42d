// Command dist packs built binaries for users: a tarball, a Debian package, a Python wheel, a list of the modules that a
// binary is made of (CycloneDX), release notes and SHA-256 sums. Each is the same, bit for bit, for the same input: files are
// in a fixed order, with the time of the commit and no owner.
//
//	go run ./.ci/dist -version V -time SECONDS -notes FILE -binaries DIR -out dist
//
// DIR has x86_64/memprof, aarch64/memprof, and per architecture static/memprof, which needs no glibc. `make dist` builds them
// (.ci/dist/build) and runs this.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// architecture has the names that packages give to one.
type architecture struct{ machine, debian string }

var architectures = []architecture{{"x86_64", "amd64"}, {"aarch64", "arm64"}}

// file is one file of a package.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

// release is what all packages share.
type release struct {
	version string
	at      time.Time
	license []byte
	readme  []byte
	python  []file // the package memprof
	shims   []file // of the wheel for x86-64 with glibc
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("dist: ")
	version := flag.String("version", "", "`text` that git describes the commit by")
	at := flag.Int64("time", 0, "`seconds` since 1970 of the commit")
	binaries := flag.String("binaries", "", "`folder` of the built binaries")
	notes := flag.String("notes", "", "`file` with the subjects of the commits since the last release")
	shims := flag.String("shims", "", "`folder` of torch shims that .ci/dist/shims has built")
	out := flag.String("out", "dist", "`folder` to write into")
	flag.Parse()
	if err := run(*version, *at, *binaries, *notes, *shims, *out); err != nil {
		log.Fatal(err)
	}
}

func run(version string, at int64, binaries, notes, shims, out string) error {
	if version == "" || at == 0 || binaries == "" {
		return fmt.Errorf("-version, -time and -binaries are needed")
	}
	r := &release{version: strings.TrimPrefix(version, "v"), at: time.Unix(at, 0).UTC()}
	var err error
	if r.license, err = os.ReadFile("LICENSE"); err != nil {
		return err
	}
	if r.readme, err = os.ReadFile("README.md"); err != nil {
		return err
	}
	if r.python, err = pythonFiles("hooks/python/memprof"); err != nil {
		return err
	}
	built, err := filepath.Glob(filepath.Join(shims, "shim-*.so"))
	if err != nil {
		return err
	}
	for _, name := range built {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		r.shims = append(r.shims, file{"memprof/_shims/" + filepath.Base(name), 0o755, data})
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	packed := map[string][]byte{}
	for _, a := range architectures {
		if err := r.pack(packed, a, filepath.Join(binaries, a.machine)); err != nil {
			return fmt.Errorf("%s: %w", a.machine, err)
		}
	}
	if packed["RELEASE_NOTES.md"], err = r.notes(notes); err != nil {
		return err
	}
	packed["SHA256SUMS"] = sums(packed)
	for name, data := range packed {
		if err := os.WriteFile(filepath.Join(out, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pack makes the packages of an architecture.
func (r *release) pack(packed map[string][]byte, a architecture, dir string) error {
	binary, err := os.ReadFile(filepath.Join(dir, "memprof"))
	if err != nil {
		return err
	}
	static, err := os.ReadFile(filepath.Join(dir, "static", "memprof"))
	if err != nil {
		return err
	}
	base := "memprof-" + r.version + "-linux-" + a.machine
	packed[base+".tar.gz"] = r.tarball(base, binary)
	packed[base+"-static.tar.gz"] = r.tarball(base+"-static", static)
	packed["memprof_"+debianVersion(r.version)+"_"+a.debian+".deb"] = r.deb(a, binary)
	for platform, binary := range map[string][]byte{"manylinux_2_28": binary, "musllinux_1_1": static} {
		packed[wheelName+"-"+pythonVersion(r.version)+"-py3-none-"+platform+"_"+a.machine+".whl"] = r.wheel(platform, a, binary)
	}
	if packed[base+".cdx.json"], err = r.bill(filepath.Join(dir, "memprof")); err != nil {
		return err
	}
	return nil
}

// tarball has the binary, to be copied to where programs are.
func (r *release) tarball(base string, binary []byte) []byte {
	return compressed(archive(r.at, []file{
		{base + "/", fs.ModeDir | 0o755, nil},
		{base + "/LICENSE", 0o644, r.license},
		{base + "/README.md", 0o644, r.readme},
		{base + "/memprof", 0o755, binary},
	}), r.at)
}

// pythonFiles are the modules of a package, below memprof/, and the .pth file beside them, by which Python processes with MEMPROF_WATCH begin.
func pythonFiles(dir string) ([]file, error) {
	start, err := os.ReadFile(dir + ".pth")
	if err != nil {
		return nil, err
	}
	files := []file{{filepath.Base(dir) + ".pth", 0o644, start}}
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".py" {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, name)
		files = append(files, file{"memprof/" + filepath.ToSlash(below), 0o644, data})
		return err
	})
	return files, err
}

// notes are the release notes: what changed, how to install, what can be read.
func (r *release) notes(subjects string) ([]byte, error) {
	var changes []byte
	if subjects != "" {
		var err error
		if changes, err = os.ReadFile(subjects); err != nil {
			return nil, err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# memprof %s, %s\n\n", r.version, r.at.Format("2006-01-02"))
	b.WriteString("Linux, x86-64 and arm64, glibc 2.28 or newer; the static tarballs read recordings on any Linux. `memprof help install` has\n" +
		"each way to install. This memprof reads recordings of every earlier one; an earlier one refuses a newer schema and says so.\n\n## Changes\n\n")
	for line := range strings.Lines(string(changes)) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString("- " + line + "\n")
		}
	}
	return []byte(b.String()), nil
}

// sums are the lines that sha256sum --check reads.
func sums(packed map[string][]byte) []byte {
	var lines []string
	for name, data := range packed {
		sum := sha256.Sum256(data)
		lines = append(lines, hex.EncodeToString(sum[:])+"  "+name+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return []byte(strings.Join(lines, ""))
}
