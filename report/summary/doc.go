// Package summary makes the first screen of a report on a device: where the recording comes from, the
// peak, the findings, and the command to run next.
//
// A finding is a number of bytes and what they are, with what to do about them. The rules are one table,
// [Rules]: each gives its bytes, and says what it found and what to do only where these are not 0. Findings
// come worst first: what the job lost, what grows without end, then by bytes. At most [MostFindings] are
// shown. Shares are of the device's used memory where a reading at the peak exists, else of reserved.
package summary
