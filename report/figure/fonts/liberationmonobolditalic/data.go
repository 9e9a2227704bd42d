// Package liberationmonobolditalic stands for a typeface that no figure uses.
package liberationmonobolditalic

import "codeberg.org/go-fonts/liberation/liberationsansbold"

// TTF is the font that is there instead, as a TrueType file.
var TTF = liberationsansbold.TTF
