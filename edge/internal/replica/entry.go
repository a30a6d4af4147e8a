package replica

import (
	"encoding/binary"
	"unsafe"
)

// entry is one cached result: version, full key and value in one block of memory without pointers, so that the garbage collector does
// not scan the cache. It is immutable.
//
//	0  sum of the counters                   uint64
//	8  stripes of organization and domain    2 × uint16
//	12 stripe of the key                     uint32
//	16 length of the name, missing           15 bits, 1 bit
//	18 length of the entry                   uint32
//	22 name, value
type entry []byte

const entryHeader = 22

func newEntry(v version, name string, value []byte) entry {
	e := make(entry, entryHeader, entryHeader+len(name)+len(value))
	le := binary.LittleEndian
	le.PutUint64(e[0:], v.sum)
	le.PutUint16(e[8:], v.organizationStripe)
	le.PutUint16(e[10:], v.domainStripe)
	le.PutUint32(e[12:], v.keyStripe)
	le.PutUint16(e[16:], uint16(len(name)))
	le.PutUint32(e[18:], uint32(cap(e)))
	return append(append(e, name...), value...)
}

func (e entry) sum() uint64                { return binary.LittleEndian.Uint64(e[0:]) }
func (e entry) organizationStripe() uint16 { return binary.LittleEndian.Uint16(e[8:]) }
func (e entry) domainStripe() uint16       { return binary.LittleEndian.Uint16(e[10:]) }
func (e entry) keyStripe() uint32          { return binary.LittleEndian.Uint32(e[12:]) }

// pointer returns the form in which caches keep the entry: a pointer takes a third of the memory of a slice header.
func (e entry) pointer() *byte { return unsafe.SliceData(e) }

// entryAt returns the entry whose first byte is at first, or nil if first is nil.
func entryAt(first *byte) entry {
	if first == nil {
		return nil
	}
	return unsafe.Slice(first, entry(unsafe.Slice(first, entryHeader)).size())
}

// named reports whether the entry belongs to this key. The cache compares hashes only, so every reader must check the name.
func (e entry) named(name []byte) bool {
	return string(e.name()) == string(name)
}

// name returns the key that the entry belongs to, in the form of catalog.Key.
func (e entry) name() []byte { return e[entryHeader : entryHeader+e.nameLen()] }

// size returns the length of the whole entry. It needs only the header, as entryAt does.
func (e entry) size() int { return int(binary.LittleEndian.Uint32(e[18:])) }

func (e entry) nameLen() int { return int(binary.LittleEndian.Uint16(e[16:]) &^ missing) }

// missing is the bit of an entry whose key does not resolve.
const missing = 1 << 15

// markMissing says that the key does not resolve. Call it before the entry is shared.
func (e entry) markMissing() { e[17] |= missing >> 8 }

// resolves reports whether the key resolves.
func (e entry) resolves() bool { return e[17]&(missing>>8) == 0 && e.value() != nil }

// value returns what the key resolves to, or nil for a key that does not resolve (a cached 404).
func (e entry) value() []byte {
	if v := e[entryHeader+e.nameLen():]; len(v) > 0 {
		return v[:len(v):len(v)]
	}
	return nil
}
