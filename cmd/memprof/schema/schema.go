// Package schema has the JSON documents of the verbs, one file a verb: a line for each place in the document, its path and the
// types of what can stand there. A test of the command line holds them against what the verbs print.
package schema

import "embed"

// Files are NAME.txt of each document.
//
//go:embed *.txt
var Files embed.FS
