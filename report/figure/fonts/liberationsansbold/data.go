// Package liberationsansbold has a typeface that figures are drawn with.
package liberationsansbold

import _ "embed"

// TTF is the font, as a TrueType file.
//
//go:embed LiberationSans-Bold.ttf
var TTF []byte
