package snapshot

// memo is what a pickle keeps by number: in pages, so that what grows with each entry is not
// copied when it grows.
type memo struct {
	pages []*[memoPage]value
	count uint64
}

const memoPage = 1 << 12

// absent is in a memo where nothing is.
var absent = value{kindNone, 1}

// full says whether the next number needs a page.
func (m *memo) full() bool { return m.count == uint64(len(m.pages))*memoPage }

// grow makes room for numbers below count.
func (m *memo) grow(count uint64) {
	for uint64(len(m.pages))*memoPage < count {
		page := new([memoPage]value)
		for i := range page {
			page[i] = absent
		}
		m.pages = append(m.pages, page)
	}
	m.count = count
}

func (m *memo) get(number uint64) (v value, ok bool) {
	if number >= m.count {
		return value{}, false
	}
	v = m.pages[number/memoPage][number%memoPage]
	return v, v != absent
}

func (m *memo) set(number uint64, v value) { m.pages[number/memoPage][number%memoPage] = v }
