package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// must is for writers to memory, which do not fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// archive is a tar file. Folders end in a slash.
func archive(at time.Time, files []file) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		head := &tar.Header{Name: f.name, Mode: int64(f.mode.Perm()), Size: int64(len(f.data)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatGNU, Uname: "root", Gname: "root"}
		if f.mode&fs.ModeDir != 0 {
			head.Typeflag = tar.TypeDir
		}
		must(w.WriteHeader(head))
		_, err := w.Write(f.data)
		must(err)
	}
	must(w.Close())
	return out.Bytes()
}

func compressed(data []byte, at time.Time) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.ModTime = at
	_, err := w.Write(data)
	must(err)
	must(w.Close())
	return out.Bytes()
}

// members is an ar file, as a Debian package is: each head has 60 bytes, and data begins at even offsets.
func members(at time.Time, files []file) []byte {
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for _, f := range files {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", f.name, at.Unix(), 0, 0, 0o100000|f.mode.Perm(), len(f.data))
		out.Write(f.data)
		if len(f.data)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

func zipped(at time.Time, files []file) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		head := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		head.SetMode(f.mode)
		entry, err := w.CreateHeader(head)
		must(err)
		_, err = io.Copy(entry, bytes.NewReader(f.data))
		must(err)
	}
	must(w.Close())
	return out.Bytes()
}
