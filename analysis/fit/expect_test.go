package fit

import "testing"

func TestBytesAt(t *testing.T) {
	tests := []struct {
		name                    string
		found                   []point // bytes in MiB
		size                    float64
		least, likely, greatest int64 // MiB
	}{
		{"as many at each size", []point{{8, 40}, {16, 40}}, 64, 40, 40, 40},
		{"in proportion", []point{{8, 40}, {16, 80}}, 64, 320, 320, 320},
		{"in proportion to the square", []point{{8, 40}, {16, 160}}, 32, 640, 640, 640},
		{"at a recorded size", []point{{8, 40}, {16, 50}}, 16, 50, 50, 50},
		{"of two parts", []point{{8, 50}, {16, 60}}, 32, 60, 80, 320},
		{"a workspace, beyond", []point{{16, 74}, {32, 107}}, 64, 107, 173, 419},
		{"a workspace, between", []point{{16, 74}, {64, 205}}, 32, 74, 117, 193},
		{"a workspace, below", []point{{32, 107}, {64, 205}}, 16, 44, 58, 64},
		{"a workspace that shrinks", []point{{16, 34}, {32, 33}}, 64, 0, 31, 241},
		{"one that only one has", []point{{16, 30}}, 64, 0, 120, 120},
		{"the two next to the size", []point{{8, 10}, {16, 300}, {64, 700}}, 8, 10, 10, 10},
		{"the two around the size", []point{{8, 10}, {16, 160}, {64, 640}}, 32, 320, 320, 320},
		{"not there", []point{{8, 0}, {16, 0}}, 64, 0, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for i := range test.found {
				test.found[i].bytes *= mib
			}
			got := bytesAt(test.found, test.size)
			if got.least/mib != test.least || got.likely/mib != test.likely || got.greatest/mib != test.greatest {
				t.Errorf("%d to %d, likely %d MiB, want %d to %d, likely %d", got.least/mib, got.greatest/mib, got.likely/mib, test.least, test.greatest, test.likely)
			}
			for seed := range uint64(50) {
				if drawn := got.draw(seed); drawn < got.least || drawn > got.greatest {
					t.Errorf("%d MiB drawn", drawn/mib)
				}
			}
		})
	}
	if small := bytesAt([]point{{8, 5000}, {16, 7000}}, 32); small.least != small.greatest {
		t.Errorf("bytes that do not matter are unsure: %+v", small)
	}
}
