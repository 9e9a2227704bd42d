package trace

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Strings are the context texts of one process, by number. Number 0 is the empty text;
// a text keeps its number for as long as the Strings live, whatever part it came from.
// They may be used from several goroutines.
type Strings struct {
	mu    sync.Mutex
	ids   map[string]int32
	bytes int64 // of all texts
	view  atomic.Pointer[stringView]
}

// stringView is never changed once published; a longer one replaces it.
type stringView struct {
	texts  []string
	hashes []uint64 // textHash of each
}

// NewStrings has the empty text only.
func NewStrings() *Strings {
	s := &Strings{ids: map[string]int32{"": 0}}
	s.view.Store(&stringView{texts: []string{""}, hashes: []uint64{textHash("")}})
	return s
}

func (s *Strings) snapshot() *stringView { return s.view.Load() }

// Text is the text with the given number, "" for a number not given out.
func (s *Strings) Text(id int32) string {
	v := s.view.Load()
	if id < 0 || int(id) >= len(v.texts) {
		return ""
	}
	return v.texts[id]
}

// Len is how many numbers have been given out; they are 0 to Len-1.
func (s *Strings) Len() int { return len(s.view.Load().texts) }

// Intern is the number of text, a new one if it has none yet.
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
	// Appending never changes what a holder of the old view can see.
	s.view.Store(&stringView{texts: append(old.texts, text), hashes: append(old.hashes, textHash(text))})
	return id
}

// maxContextBytes is the most that the different contexts of a process may take together.
const maxContextBytes = 512 << 20

// internWithin is Intern of a text from a file, for which there is a limit.
func (s *Strings) internWithin(text string) (int32, error) {
	id := s.Intern(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes > maxContextBytes {
		return 0, fmt.Errorf("contexts of more than %d bytes in one process", maxContextBytes)
	}
	return id, nil
}
