package clicks

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"deeplink/shared/click"
)

const (
	// slotSize is the size of a record, and of the pieces that texts are stored in.
	slotSize = 64
	pageSize = 4096
	// textHeader is the length of what precedes the bytes of a text in its first slot.
	textHeader = 8
)

// The kinds of slots.
const (
	kindClick = 1
	kindText  = 2
	// kindUnused fills the slots at the end of a segment for which what was to be stored was too long.
	kindUnused = 3
)

// record is one click, as it is stored:
//
//	0  check, of the rest and of the seed of the segment     uint32
//	4  kind, outcome, reason, flags                          4 bytes
//	8  at, in milliseconds since 1970                        int64
//	16 link                                                  16 bytes, zero if none
//	32 organization key                                      4 bytes
//	36 evidence                                              uint16
//	38 country                                               2 bytes, zero if unknown
//	40 visitor                                               uint64
//	48 agent, referrer: 1 + slot of the text, 0 if none      2 × uint32
//	56 language                                              3 bytes, zero if unknown
//	59 ruleset                                               uint8
//	60                                                       4 bytes, zero
type record struct {
	outcome  click.Outcome
	reason   click.Reason
	flags    uint8
	ruleset  uint8
	at       int64
	link     [16]byte
	orgKey   [4]byte
	evidence click.Evidence
	country  [2]byte
	language [3]byte
	visitor  uint64
	agent    uint32
	referrer uint32
}

// The flags of a record.
const (
	hasLink       = 1 << 0
	hasVisitor    = 1 << 1
	hasOtherAgent = 1 << 2 // an agent for which the segment has no room
	kindOffset    = 4
	lengthOffset  = 6
)

// write stores the record in a slot. The check comes last and makes the record valid: a process that is killed before it leaves a slot
// that every reader skips.
func (r *record) write(slot *[slotSize]byte, seed uint64) {
	le := binary.LittleEndian
	// As eight words, so that the check needs no second read.
	w0 := uint64(kindClick)<<32 | uint64(r.outcome)<<40 | uint64(r.reason)<<48 | uint64(r.flags)<<56
	w1 := uint64(r.at)
	w2, w3 := le.Uint64(r.link[:8]), le.Uint64(r.link[8:])
	w4 := uint64(le.Uint32(r.orgKey[:])) | uint64(r.evidence)<<32 | uint64(le.Uint16(r.country[:]))<<48
	w5 := r.visitor
	w6 := uint64(r.agent) | uint64(r.referrer)<<32
	w7 := uint64(r.language[0]) | uint64(r.language[1])<<8 | uint64(r.language[2])<<16 | uint64(r.ruleset)<<24
	le.PutUint32(slot[4:], uint32(w0>>32))
	le.PutUint64(slot[8:], w1)
	le.PutUint64(slot[16:], w2)
	le.PutUint64(slot[24:], w3)
	le.PutUint64(slot[32:], w4)
	le.PutUint64(slot[40:], w5)
	le.PutUint64(slot[48:], w6)
	le.PutUint64(slot[56:], w7)
	storeCheck(slot, fold(fold(seed, w0>>32, w1, w2), w3, w4, w5)^fold(seed, w6, w7, w1))
}

// read decodes the slot of a click. It is valid only if [check] accepts the slot.
func (r *record) read(slot *[slotSize]byte) {
	le := binary.LittleEndian
	r.outcome, r.reason, r.flags = click.Outcome(slot[5]), click.Reason(slot[6]), slot[7]
	r.at = int64(le.Uint64(slot[8:]))
	copy(r.link[:], slot[16:])
	copy(r.orgKey[:], slot[32:])
	r.evidence = click.Evidence(le.Uint16(slot[36:]))
	copy(r.country[:], slot[38:])
	r.visitor = le.Uint64(slot[40:])
	r.agent, r.referrer = le.Uint32(slot[48:]), le.Uint32(slot[52:])
	copy(r.language[:], slot[56:])
	r.ruleset = slot[59]
}

// checkOf computes the check of a slot of a click.
func checkOf(slot *[slotSize]byte, seed uint64) uint32 {
	le := binary.LittleEndian
	word := func(at int) uint64 { return le.Uint64(slot[at:]) }
	return nonzero(fold(fold(seed, word(0)>>32, word(8), word(16)), word(24), word(32), word(40)) ^ fold(seed, word(48), word(56), word(8)))
}

// fold mixes three words into a seed, as wyhash does. The seed of a segment is random, so no client can make a text that reads as a record.
func fold(seed, a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a^seed^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	hi2, lo2 := bits.Mul64(c^hi^0x8ebc6af09c88c6e3, lo^seed^0x589965cc75374cc3)
	return hi2 ^ lo2
}

// nonzero returns the check for a hash: 0 is the check of no slot, because a new file has zeros.
func nonzero(hash uint64) uint32 {
	return uint32(hash>>32) ^ uint32(hash) | 1
}

func storeCheck(slot *[slotSize]byte, hash uint64) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(slot)), nonzero(hash))
}

func loadCheck(slot *[slotSize]byte) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(slot)))
}

// textSlots returns the number of slots that a text of n bytes takes.
func textSlots(n int) int { return (textHeader + n + slotSize - 1) / slotSize }

// textHash hashes a text and its length for the check of its first slot.
func textHash(seed uint64, text []byte) uint64 {
	le := binary.LittleEndian
	hash := fold(seed, kindText, uint64(len(text)), 0)
	for len(text) >= 16 {
		hash = fold(hash, le.Uint64(text), le.Uint64(text[8:]), seed)
		text = text[16:]
	}
	var rest [16]byte
	copy(rest[:], text)
	return fold(hash, le.Uint64(rest[:]), le.Uint64(rest[8:]), seed)
}
