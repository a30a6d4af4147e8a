package keyguard

import "sync"

// maxProven is the maximum number of keys in a generation. Two generations take about 4 MB.
const maxProven = 1 << 15

// recentlyValid is a set of keys that evicts the least recently used. Its zero value is empty.
//
// It has two generations. A key that is used moves to the younger one. When that has maxProven keys, it becomes the older one, and the former
// older one is dropped.
type recentlyValid struct {
	mu             sync.Mutex
	younger, older map[Hash]struct{}
}

func (s *recentlyValid) has(hash Hash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.younger[hash]; ok {
		return true
	}
	_, ok := s.older[hash]
	if ok {
		s.insert(hash)
	}
	return ok
}

func (s *recentlyValid) add(hash Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.insert(hash)
}

// insert is called with mu held.
func (s *recentlyValid) insert(hash Hash) {
	if s.younger == nil || len(s.younger) >= maxProven {
		s.younger, s.older = make(map[Hash]struct{}), s.younger
	}
	s.younger[hash] = struct{}{}
}

func (s *recentlyValid) remove(hash Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.younger, hash)
	delete(s.older, hash)
}
