package models

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseBytes reads the bytes of a page.
func ParseBytes(text string) (int64, error) {
	digits, shift := text, 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if before, ok := strings.CutSuffix(text, unit); ok {
			digits, shift = before, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n<<shift>>shift != n {
		return 0, fmt.Errorf("want the bytes of a page, such as 2MiB, not %q", text)
	}
	return n << shift, nil
}

// FormatBytes is a size in the greatest unit that divides it.
func FormatBytes(bytes int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if shift := 30 - 10*i; bytes > 0 && bytes%(1<<shift) == 0 {
			return fmt.Sprintf("%d%s", bytes>>shift, unit)
		}
	}
	return strconv.FormatInt(bytes, 10)
}
