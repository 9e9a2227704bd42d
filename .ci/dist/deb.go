package main

import (
	"crypto/md5"
	"fmt"
	"io/fs"
	"strings"
)

// debianVersion is a version as dpkg compares them: it begins with a digit, and a commit after a tag is newer than the tag.
func debianVersion(version string) string {
	version = strings.NewReplacer("-", "+", "_", "+").Replace(version)
	if version[0] < '0' || version[0] > '9' || !strings.Contains(version, ".") {
		return "0+" + version
	}
	return version
}

// deb is the Debian package: the binary, for any Debian or Ubuntu with glibc 2.28 or newer.
func (r *release) deb(a architecture, binary []byte) []byte {
	content := []file{
		{"./", fs.ModeDir | 0o755, nil},
		{"./usr/", fs.ModeDir | 0o755, nil},
		{"./usr/bin/", fs.ModeDir | 0o755, nil},
		{"./usr/bin/memprof", 0o755, binary},
		{"./usr/share/", fs.ModeDir | 0o755, nil},
		{"./usr/share/doc/", fs.ModeDir | 0o755, nil},
		{"./usr/share/doc/memprof/", fs.ModeDir | 0o755, nil},
		{"./usr/share/doc/memprof/README.md", 0o644, r.readme},
		{"./usr/share/doc/memprof/copyright", 0o644, r.license},
	}
	size := 0
	var sums strings.Builder
	for _, f := range content {
		size += len(f.data)
		if f.data != nil {
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.data), strings.TrimPrefix(f.name, "./"))
		}
	}
	control := fmt.Sprintf(`Package: memprof
Version: %s
Architecture: %s
Maintainer: memprof <memprof@localhost>
Installed-Size: %d
Depends: libc6 (>= 2.28)
Recommends: g++, python3
Section: devel
Priority: optional
Description: record where the GPU memory of a job goes
 memprof records every GPU memory allocation of a job and reports where the bytes
 went: requested, lost inside chunks, free, or taken by other libraries.
`, debianVersion(r.version), a.debian, (size+1023)/1024)
	return members(r.at, []file{
		{"debian-binary", 0o644, []byte("2.0\n")},
		{"control.tar.gz", 0o644, compressed(archive(r.at, []file{
			{"./", fs.ModeDir | 0o755, nil},
			{"./control", 0o644, []byte(control)},
			{"./md5sums", 0o644, []byte(sums.String())},
		}), r.at)},
		{"data.tar.gz", 0o644, compressed(archive(r.at, content), r.at)},
	})
}
