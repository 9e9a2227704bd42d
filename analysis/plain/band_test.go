package plain

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestBand(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for want, band := range map[string]Band{
		"6.11 to 6.41 GiB":     BandOf(6560*mib, 6450*mib, 6256*mib),
		"1000 MiB to 1.02 GiB": BandOf(1000*mib, 1045*mib),
		"6.11 GiB":             BandOf(6256*mib, 6257*mib),
		"2 GiB":                BandOf(2 * gib),
	} {
		assert.Equal(t, band.String(), want, "%+v", band)
	}
	assert.That(t, BandOf(1, 2).Wide() && !BandOf(2, 2).Wide(), "a band of two numbers is wide, and one of one number is not")
}
