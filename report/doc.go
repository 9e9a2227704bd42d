// Package report turns the results of package analysis into something to look at: tables for
// the terminal ([Text]), Markdown for a pull request ([Markdown]), JSON for a program ([JSON])
// and plots ([Plots], [WritePlots]). It knows nothing of traces or of the command line.
//
// # Numbers
//
// Sizes are printed in binary units (KiB, MiB, GiB, TiB) with three or four significant digits
// and without decimals where they are exact; JSON carries bytes as integers. Shares are percent
// of the reserved bytes at the same instant unless a column says otherwise. What does not exist
// (a time of something that never happened, a share of nothing) is printed as "–" and is null in
// JSON; no result, however empty, prints NaN.
//
// # The split
//
// Every table and plot of the split uses the same names in the same order,
//
//	reserved = requested + internal (rounding, slack) + pending + reserve + external
//
// and every plot the same colours, told apart by readers with any of the common colour-vision
// deficiencies (Okabe and Ito's palette).
//
// # The books
//
// Held against what the device has in use, the same terms have others beside them:
//
//	used = tensors (the split's requested) + internal + pending + reserve + external
//	     + each other library by name + idle pools of the driver + driver overhead + unexplained
//
// Shares are of used there. A part is a number from 0 to used or unknown; what unknown parts have
// together is the rest.
//
// # Who holds what
//
// Tables of holders have every block of their instant once: the groups that are listed and the
// line for the others add up to the last line. Stacks are printed with the innermost frame first,
// on a line with the numbers, and its callers below. Of the first requests that failed a table
// tells the same at that moment. JSON has more groups and whole stacks.
//
// # What changed
//
// Two sets of runs are compared by [DiffText], [DiffMarkdown] and [DiffJSON]. Values are medians;
// a change of shares is in points ("pt"), and "%" is the change as a share of the base. Noise
// is the greater spread of the two sets, and "–" where neither has repetitions.
//
// # Several jobs
//
// The BFC paper's table over the recordings of many jobs is written by [StudyText],
// [StudyMarkdown] and [StudyJSON], with what the paper printed below what was found. What a job
// would have taken under other policies, by [TuneText], [TuneMarkdown] and [TuneJSON].
//
// # Plots
//
// Each device of a process gets four figures of 1200 × 700 pixels: "timeline" (the three curves
// of the BFC paper's figure 2), "iterations" (its figure 3 and the peaks iteration by iteration),
// "split" (the terms above, stacked over time) and "map" (the addresses at the peak instant, to
// scale). Long courses are reduced to the resolution of the figure by intervals that keep their
// least and greatest value, so that no peak is lost; while nothing happens, the last value
// holds. The same result always draws the same bytes.
//
// # The page
//
// [HTML] writes one page that loads nothing: its script and style stand in it and are named by their hashes in
// a policy that forbids all else; the data stands in it compressed. The course of a device comes at several
// levels of detail, each point with the least and greatest value in its interval; the whole address
// space, and who holds what, at the keyframes of package analysis. A click goes to the nearest of
// these and says how far that is; [MomentsText] tells of any other instant exactly. When
// a page would be too long, keyframes are given up, and it says how many. The files of the page
// are in html/, plain scripts that share one scope, in the order of scripts.
//
// # Text from traces
//
// Names of contexts and processes come from the profiled job and are not trusted: control
// characters, invalid UTF-8 and marks that reorder text are written as escapes, long names are
// shortened with "…", and Markdown and SVG are escaped for what they are.
package report
