package dataset

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Strings numbers the context texts of one process. Number 0 is the empty text. A text keeps its number, in
// whatever part it is met. Strings are safe for concurrent use.
type Strings struct {
	mu    sync.Mutex
	ids   map[string]int32
	bytes int64 // of all texts
	view  atomic.Pointer[stringView]
}

// stringView is immutable; Intern replaces it by a longer one.
type stringView struct {
	texts  []string
	hashes []uint64 // of each text, by textHash
}

// NewStrings returns Strings with the empty text only.
func NewStrings() *Strings {
	s := &Strings{ids: map[string]int32{"": 0}}
	s.view.Store(&stringView{texts: []string{""}, hashes: []uint64{textHash("")}})
	return s
}

func (s *Strings) snapshot() *stringView { return s.view.Load() }

// Text returns the text with a number; "" if no text has it.
func (s *Strings) Text(id int32) string {
	v := s.view.Load()
	if id < 0 || int(id) >= len(v.texts) {
		return ""
	}
	return v.texts[id]
}

// Len is the number of texts; their numbers are 0 to Len-1.
func (s *Strings) Len() int { return len(s.view.Load().texts) }

// Intern returns the number of a text, and gives it the next number if it has none.
func (s *Strings) Intern(text string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.ids[text]; ok {
		return id
	}
	old := s.view.Load()
	id := int32(len(old.texts))
	s.ids[text] = id
	s.bytes += int64(len(text))
	// Readers of the old view see only its length, which appending does not change.
	s.view.Store(&stringView{texts: append(old.texts, text), hashes: append(old.hashes, textHash(text))})
	return id
}

// maxContextBytes is the most bytes of all different contexts of a process.
const maxContextBytes = 512 << 20

// internWithin is Intern of a text from a file, which fails beyond maxContextBytes.
func (s *Strings) internWithin(text string) (int32, error) {
	id := s.Intern(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes > maxContextBytes {
		return 0, fmt.Errorf("the different contexts of the process have more than %d bytes", maxContextBytes)
	}
	return id, nil
}
