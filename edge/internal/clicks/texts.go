package clicks

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const (
	// textShare: texts may take one slot in this many of a segment, so that made-up agents cannot fill it.
	textShare = 8
	// maxProbes bounds a lookup.
	maxProbes = 16
)

// texts is the index of the texts of a segment: an open hash table. Lookups take no lock.
type texts struct {
	mu sync.Mutex
	// table has, for each text, 32 bits of its hash and 1 + its slot.
	table []atomic.Uint64
	left  int // slots that texts may still take
}

var textSeed = maphash.MakeSeed()

func (t *texts) init(slots int) {
	size := 256
	for size < slots/textShare {
		size <<= 1
	}
	if len(t.table) != size {
		t.table = make([]atomic.Uint64, size)
	} else {
		clear(t.table)
	}
	t.left = slots / textShare
}

// reference returns 1 + the slot of a text in the segment, and stores the text if it is new. It returns 0 if there is no room for it.
func (s *segment) reference(text []byte, hash uint64) uint32 {
	if ref := s.find(text, hash); ref != 0 {
		return ref
	}
	s.texts.mu.Lock()
	defer s.texts.mu.Unlock()
	if ref := s.find(text, hash); ref != 0 {
		return ref
	}
	n := textSlots(len(text))
	if n > s.texts.left {
		return 0
	}
	mask := uint64(len(s.texts.table) - 1)
	for probe := range uint64(maxProbes) {
		entry := &s.texts.table[(hash+probe)&mask]
		if entry.Load() != 0 {
			continue
		}
		slot := s.writeText(text)
		if slot < 0 {
			return 0
		}
		s.texts.left -= n
		entry.Store(hash>>32<<32 | uint64(slot+1))
		return uint32(slot + 1)
	}
	return 0
}

func (s *segment) find(text []byte, hash uint64) uint32 {
	mask := uint64(len(s.texts.table) - 1)
	for probe := range uint64(maxProbes) {
		entry := s.texts.table[(hash+probe)&mask].Load()
		if entry == 0 {
			return 0
		}
		if entry>>32 == hash>>32 && string(s.stored(uint32(entry)-1)) == string(text) {
			return uint32(entry)
		}
	}
	return 0
}

// stored returns a text that this process has written, without a check.
func (s *segment) stored(slot uint32) []byte {
	at := pageSize + int(slot)*slotSize
	length := int(s.data[at+lengthOffset]) | int(s.data[at+lengthOffset+1])<<8
	return s.data[at+textHeader : at+textHeader+length]
}
