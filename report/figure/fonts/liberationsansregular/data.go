// Package liberationsansregular has a typeface that figures are drawn with.
package liberationsansregular

import _ "embed"

// TTF is the font, as a TrueType file.
//
//go:embed LiberationSans-Regular.ttf
var TTF []byte
