package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// builtAt are paths that say where a recording was made: folders of a build machine and temporary ones.
var builtAt = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/(?:work|workspace|builds?|root|tmp|__w|github|opt/torch)/[\w./-]*`)
})

// Nothing in samples/ names a folder of the machine that it was made on: neither stacks in pickles, nor texts in the dictionaries
// of recordings and what their files say of themselves, nor run.json.
func TestSamplesNameNoBuildFolder(t *testing.T) {
	texts := 0
	look := func(path, text string) {
		texts++
		assert.Equal(t, builtAt().FindString(text), "", "%s names", path)
	}
	err := filepath.WalkDir("../../samples", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".gz":
			look(path, unzipped(t, path))
		case ".json":
			look(path, string(mustRead(t, path)))
		case ".parquet":
			look(path, string(mustRead(t, path)))
			if !strings.HasPrefix(entry.Name(), dataset.ReadingsName) {
				for _, text := range textsOf(t, path) {
					look(path, text)
				}
			}
		}
		return nil
	})
	assert.NoError(t, err)
	assert.That(t, texts >= 1000, "looked at %d texts only", texts)
}

func unzipped(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	assert.NoError(t, err)
	defer file.Close()
	stream, err := gzip.NewReader(file)
	assert.NoError(t, err)
	var text bytes.Buffer
	if _, err := io.Copy(&text, stream); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// textsOf are the texts of a part of a recording.
func textsOf(t *testing.T, path string) []string {
	t.Helper()
	run, err := dataset.Open(path)
	assert.NoError(t, err)
	var texts []string
	for _, p := range run.Processes {
		reader, err := p.NewReader()
		assert.NoError(t, err)
		for err == nil {
			_, err = reader.Next()
		}
		if err != io.EOF {
			t.Fatal(err)
		}
		for i := range p.Strings().Len() {
			texts = append(texts, p.Strings().Text(int32(i)))
		}
		reader.Close()
	}
	return texts
}
