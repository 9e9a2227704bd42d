// Package compare compares results of package analysis with each other: two sets of runs ([Compare]), the
// ranks of one job ([CompareRanks]), jobs with the BFC paper's table ([Study]), and values with their median
// ([Outliers]).
//
// It reads only finished results. It knows package analysis, and nothing of traces, recordings, gates or
// reports. Package analysis does not know it.
package compare
