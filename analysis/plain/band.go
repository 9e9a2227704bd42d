package plain

import "strings"

// Band is from what to what a number of bytes goes; both are equal where it is known.
type Band struct {
	Least    int64 `json:"least"`
	Greatest int64 `json:"greatest"`
}

// BandOf is the narrowest band with these numbers, of which there is at least one.
func BandOf(first int64, more ...int64) Band {
	b := Band{first, first}
	for _, n := range more {
		b.Least, b.Greatest = min(b.Least, n), max(b.Greatest, n)
	}
	return b
}

// Wide says whether the number is not known exactly.
func (b Band) Wide() bool { return b.Least < b.Greatest }

// String is the band for people: "6.11 to 6.30 GiB", and "6.11 GiB" where both ends read so.
func (b Band) String() string {
	least, greatest := FormatSize(b.Least), FormatSize(b.Greatest)
	if least == greatest {
		return least
	}
	if number, unit, _ := strings.Cut(least, " "); strings.HasSuffix(greatest, " "+unit) {
		least = number
	}
	return least + " to " + greatest
}
