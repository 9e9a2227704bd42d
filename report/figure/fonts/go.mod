// The two Liberation fonts that memprof's figures use, under the names of all twelve. gonum.org/v1/plot imports all twelve and loads them
// when the program starts, 4.3 MB of which 3.5 are never drawn with: go.mod of memprof puts this module in place of the full one.
// A figure that wants another of them copies its file from the full module into the folder of that name.
module codeberg.org/go-fonts/liberation

go 1.23.0
