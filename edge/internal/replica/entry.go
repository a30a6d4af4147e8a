package replica

import (
	"encoding/binary"
	"unsafe"
)

// entry is one cached answer: marks, full key and value in one piece of memory without pointers, so that millions of them
// cost the garbage collector nothing. It is never changed once made.
//
//	0  epoch, organization, domain, key      4 × uint64
//	32 stripes of organization and domain    2 × uint16
//	36 stripe of the key                     uint32
//	40 length of the name                    uint16
//	42 length of the entry                   uint32
//	46 name, value
type entry []byte

const entryHeader = 46

func newEntry(m marks, name string, value []byte) entry {
	e := make(entry, entryHeader, entryHeader+len(name)+len(value))
	le := binary.LittleEndian
	le.PutUint64(e[0:], m.epoch)
	le.PutUint64(e[8:], m.organization)
	le.PutUint64(e[16:], m.domain)
	le.PutUint64(e[24:], m.key)
	le.PutUint16(e[32:], m.organizationStripe)
	le.PutUint16(e[34:], m.domainStripe)
	le.PutUint32(e[36:], m.keyStripe)
	le.PutUint16(e[40:], uint16(len(name)))
	le.PutUint32(e[42:], uint32(cap(e)))
	return append(append(e, name...), value...)
}

func (e entry) epoch() uint64              { return binary.LittleEndian.Uint64(e[0:]) }
func (e entry) organization() uint64       { return binary.LittleEndian.Uint64(e[8:]) }
func (e entry) domain() uint64             { return binary.LittleEndian.Uint64(e[16:]) }
func (e entry) key() uint64                { return binary.LittleEndian.Uint64(e[24:]) }
func (e entry) organizationStripe() uint16 { return binary.LittleEndian.Uint16(e[32:]) }
func (e entry) domainStripe() uint16       { return binary.LittleEndian.Uint16(e[34:]) }
func (e entry) keyStripe() uint32          { return binary.LittleEndian.Uint32(e[36:]) }

// begin is the entry as caches keep it: in a third of the room that a slice takes.
func (e entry) begin() *byte { return unsafe.SliceData(e) }

// entryAt returns the entry that begins there, nil at nil.
func entryAt(begin *byte) entry {
	if begin == nil {
		return nil
	}
	return unsafe.Slice(begin, entry(unsafe.Slice(begin, entryHeader)).size())
}

// named reports whether the entry is about exactly this key: the cache compares hashes only.
func (e entry) named(name []byte) bool {
	return string(e[entryHeader:entryHeader+e.nameLen()]) == string(name)
}

// size is the length of the entry: known to one that has its beginning only.
func (e entry) size() int { return int(binary.LittleEndian.Uint32(e[42:])) }

func (e entry) nameLen() int { return int(binary.LittleEndian.Uint16(e[40:])) }

// value is what the name leads to; nil when it leads nowhere.
func (e entry) value() []byte {
	if v := e[entryHeader+e.nameLen():]; len(v) > 0 {
		return v[:len(v):len(v)]
	}
	return nil
}
