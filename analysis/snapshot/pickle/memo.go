package pickle

// numbers is a list of integers in pages, so that growing copies nothing.
type numbers struct {
	pages []*[numbersPage]uint64
	count uint64
}

const numbersPage = 1 << 12

// full says whether the next number needs a page.
func (p *numbers) full() bool { return p.count == uint64(len(p.pages))*numbersPage }

// grow makes room for count numbers; new ones are fill.
func (p *numbers) grow(count, fill uint64) {
	for uint64(len(p.pages))*numbersPage < count {
		page := new([numbersPage]uint64)
		for i := range page {
			page[i] = fill
		}
		p.pages = append(p.pages, page)
	}
	p.count = count
}

func (p *numbers) at(number uint64) *uint64 {
	return &p.pages[number/numbersPage][number%numbersPage]
}

// memo is what a pickle keeps by number. Picklers keep each container and each text, so a snapshot has
// two or three for each entry: a value takes 8 bytes here, its kind in the highest bits.
type memo struct {
	numbers
	boxed []Value // values that do not fit
}

const (
	memoKind   = 61
	memoLimit  = 1<<memoKind - 1
	memoAbsent = 1 // of KindNone: nothing is kept there
	memoBoxed  = 2 // of KindNone, and above: boxed
)

func (m *memo) get(number uint64) (v Value, ok bool) {
	if number >= m.count {
		return Value{}, false
	}
	packed := *m.at(number)
	v = Value{Kind(packed >> memoKind), packed & memoLimit}
	switch {
	case v.Kind != KindNone || v.N == 0:
		return v, true
	case v.N == memoAbsent:
		return Value{}, false
	}
	return m.boxed[v.N-memoBoxed], true
}

// packed returns a value in 8 bytes; ok is false if it needs more.
func packed(v Value) (word uint64, ok bool) {
	return uint64(v.Kind)<<memoKind | v.N, v.N <= memoLimit && (v.Kind != KindNone || v.N == 0)
}

func (m *memo) set(number uint64, v Value) {
	word, ok := packed(v)
	if !ok {
		word = memoBoxed + uint64(len(m.boxed))
		m.boxed = append(m.boxed, v)
	}
	*m.at(number) = word
}
