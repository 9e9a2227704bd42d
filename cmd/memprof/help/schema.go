package help

import (
	"embed"
	"io/fs"
)

// The JSON documents of the verbs, one file a verb: a line for each place in the document, its path and the types of what can
// stand there. A test of the command line holds them against what the verbs print.
//
//go:embed schema/*.txt
var schemaFiles embed.FS

// documents are NAME.txt of each document.
var documents = func() fs.FS {
	folder, err := fs.Sub(schemaFiles, "schema")
	if err != nil {
		panic(err) // it is embedded
	}
	return folder
}()
