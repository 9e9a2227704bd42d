// Package renames is the one table of names that earlier versions of memprof gave to metrics and to keys of
// JSON documents. No flag and no environment variable was renamed so far; tests of cmd/memprof hold all three
// to the names of earlier versions.
//
// Gates and baselines look their names up here, and the help topics list them. A name whose meaning changed is no
// alias: it is refused, saying what it meant.
package renames

import "slices"

// Name is a name of an earlier version.
type Name struct {
	Old, New string
	// Changed says what Old meant, where New does not mean the same: it reads on after Old as the subject.
	// A number of Old is then not one of New, and whoever has it must choose another. It is "" for an alias.
	Changed string
}

// Table has names in any order, no Old twice.
type Table []Name

// Lookup returns what became of a name.
func (t Table) Lookup(old string) (Name, bool) {
	at := slices.IndexFunc(t, func(n Name) bool { return n.Old == old })
	if at < 0 {
		return Name{}, false
	}
	return t[at], true
}
