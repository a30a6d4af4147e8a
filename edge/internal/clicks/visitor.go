package clicks

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// salt is the key of the visitors of one day.
type salt struct {
	day    int64 // days since 1970
	k0, k1 uint64
}

func newSalt(day int64, key []byte) *salt {
	return &salt{day, binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:])}
}

const day = int64(24 * time.Hour / time.Millisecond)

// dayOf returns the UTC day of a time in milliseconds.
func dayOf(at int64) int64 { return at / day }

// visitor returns SipHash-2-4 (Aumasson, Bernstein 2012) of the organization key, the address and the first 8 bytes of the SHA-256 of the
// User-Agent: 28 bytes.
func (s *salt) visitor(orgKey [4]byte, address *[16]byte, agent uint64) uint64 {
	le := binary.LittleEndian
	a0, a1 := le.Uint64(address[:8]), le.Uint64(address[8:])
	m0 := uint64(le.Uint32(orgKey[:])) | a0<<32
	m1 := a0>>32 | a1<<32
	m2 := a1>>32 | agent<<32
	m3 := agent>>32 | 28<<56
	v0, v1 := s.k0^0x736f6d6570736575, s.k1^0x646f72616e646f6d
	v2, v3 := s.k0^0x6c7967656e657261, s.k1^0x7465646279746573
	// Without loops, all values stay in registers.
	v0, v1, v2, v3 = sipRound(sipRound(v0, v1, v2, v3^m0))
	v0, v1, v2, v3 = sipRound(sipRound(v0^m0, v1, v2, v3^m1))
	v0, v1, v2, v3 = sipRound(sipRound(v0^m1, v1, v2, v3^m2))
	v0, v1, v2, v3 = sipRound(sipRound(v0^m2, v1, v2, v3^m3))
	v0, v1, v2, v3 = sipRound(sipRound(sipRound(sipRound(v0^m3, v1, v2^0xff, v3))))
	return v0 ^ v1 ^ v2 ^ v3
}

func sipRound(v0, v1, v2, v3 uint64) (_, _, _, _ uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
