// Package liberationsansitalic stands for a typeface that no figure uses.
package liberationsansitalic

import "codeberg.org/go-fonts/liberation/liberationsansregular"

// TTF is the font that is there instead, as a TrueType file.
var TTF = liberationsansregular.TTF
