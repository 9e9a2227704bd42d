// Package report turns results of package analysis into text for a terminal ([Text]), Markdown for a
// pull request ([Markdown]), JSON for a program ([JSON]), plots ([Plots], [WritePlots]) and a page
// ([HTML]). It knows nothing of traces or of the command line.
//
// A report consists of subjects. The file of a subject has its sections, its plots and its part of the
// JSON; subjects.go lists the subjects in reading order. Sections are printed by package layout, plots
// drawn by package figure, pages made by package page.
//
// # Numbers
//
// Sizes have binary units (KiB, MiB, GiB, TiB) and three or four significant digits, and no decimals if
// they are exact; in JSON they are integers of bytes. Shares are percent of the reserved bytes at the
// same instant unless the head of the column names another whole. What is not known or does not exist is
// "–", and null in JSON; nothing prints NaN.
//
// # The split
//
// Every table and plot uses these terms, and every plot the same colours, which readers with the common
// colour-vision deficiencies can tell apart (Okabe and Ito's palette):
//
//	reserved = requested + internal (rounding, slack) + pending + stranded + reserve + reusable + external
//
// # Device accounting
//
//	used = the terms of reserved + each other library by name + idle pools of the driver
//	     + driver overhead + unexplained
//
// Shares are of used. Each term is a number from 0 to used, or unknown; the rest is the sum of the
// unknown terms.
//
// # Live allocations
//
// A table of live allocations has each allocation once: the listed groups and the row of the others add
// up to the last row. A stack has its innermost frame on the row with the numbers, and its callers below.
// JSON has more groups and whole stacks. The first requests that failed have such tables of their own.
//
// # Comparisons
//
// [DiffSections], [DiffJSON] and [DiffHTML] compare two sets of runs. Values are medians. A
// change of a share is in points ("pt"); "%" is a change relative to the base. Noise is the greater spread
// of the two sets, and "–" if neither has repetitions.
//
// [FitSections] and [FitJSON] report the memory of a recorded job under other policies,
// package kv that of KV caches, package study the BFC paper's table over several jobs.
//
// # Plots
//
// A figure has 1200 × 700 pixels. "timeline" is figure 2 of the BFC paper: requested, provided and
// reserved over time. A long series is reduced to the resolution of the figure: each interval keeps its
// minimum and maximum, so that no peak is lost, and between events the last value holds. Equal results draw
// equal bytes.
//
// # Text from recordings
//
// Names of contexts and processes come from the profiled job and are not trusted: package plain writes
// control characters, invalid UTF-8 and marks that reorder text as escapes, and escapes Markdown. Long
// names are shortened with "…".
package report
