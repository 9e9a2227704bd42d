package accounting

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

const ms = 1_000_000

func TestReadingForAnInstant(t *testing.T) {
	course := Course{{0, 1000 * ms, 1}, {1100 * ms, 1100 * ms, 2}, {1200 * ms, 3000 * ms, 3}, {3100 * ms, 3200 * ms, 4}}
	tests := []struct {
		name                         string
		instant, since, until, ended int64 // ms
		want                         Reading
	}{
		{"between two equal ones", 500, 400, 900, 5000, Reading{true, 1, 0, true}},
		{"the next", 1050, 1040, 1900, 5000, Reading{true, 2, 50 * ms, true}},
		{"exactly then", 1100, 1050, 1150, 5000, Reading{true, 2, 0, true}},
		{"only before the instant", 1190, 1050, 1195, 5000, Reading{true, 2, -90 * ms, true}},
		{"a short state within a stretch", 2000, 1990, 2050, 5000, Reading{true, 3, 0, false}},
		{"a state long enough within one", 2000, 1900, 2100, 5000, Reading{true, 3, 0, true}},
		{"changed before the next reading", 1110, 1105, 1190, 5000, Reading{true, 2, -10 * ms, false}},
		{"nearer afterwards", 1170, 1160, 1190, 5000, Reading{true, 3, 30 * ms, false}},
		{"not after the end", 3080, 3070, 3085, 3085, Reading{true, 3, -80 * ms, false}},
		{"before the first", -50, -60, -20, 5000, Reading{true, 1, 50 * ms, false}},
		{"after the last", 4000, 3900, 4500, 5000, Reading{true, 4, -800 * ms, false}},
	}
	for _, test := range tests {
		got := course.at(test.instant*ms, test.since*ms, test.until*ms, test.ended*ms)
		assert.Equal(t, got, test.want, "%s", test.name)
	}
	got := (Course)(nil).at(5, 0, 9, 9)
	assert.That(t, !got.Valid, "a reading from nothing: %+v", got)
}

// What a card has beside a process counts while the process's own use is steady, and while it is there.
func TestBeside(t *testing.T) {
	g := GPUReadings{
		All: Course{{0, 0, 3}, {100 * ms, 100 * ms, 900}, {200 * ms, 900 * ms, 108}, {1000 * ms, 1500 * ms, 120}, {2000 * ms, 3000 * ms, 700}},
	}
	for want, own := range map[int64]Course{
		20: {{101 * ms, 101 * ms, 50}, {201 * ms, 901 * ms, 100}, {1001 * ms, 1501 * ms, 100}, {2001 * ms, 3001 * ms, 0}},
		8:  {{101 * ms, 101 * ms, 50}, {201 * ms, 901 * ms, 100}},
		0:  {{1001 * ms, 1501 * ms, 121}},
	} {
		assert.Equal(t, g.beside(own), want)
	}
}
