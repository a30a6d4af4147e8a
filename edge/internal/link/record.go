// Package link keeps a link as the edge serves it: the verdict's inputs, where the link leads on the web, the body of /data, and the
// texts that pages show. It promises that everything is computed when the link is loaded, so that a click only appends bytes and
// allocates nothing. It neither loads links nor decides what a client gets.
package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/google/uuid"

	"deeplink/edge/internal/origin"
	"deeplink/shared/catalog"
)

// Record is everything that the responses to one link are made of, in one piece of memory without pointers, so that millions of records
// cost the garbage collector nothing. Requests share a record and must not change it; the slices that its methods return are part of it.
//
//	0  suspended, active      2 bytes of 0 or 1
//	2  expiry                 int64, milliseconds since 1970, or catalog.NoExpiry
//	10 id                     16 bytes
//	26 ends of the path and of the query of the destination        2 × uint16
//	30 length of the link's own fallback URL in the destination    uint16
//	32 room for the destination on a page, in bytes                uint16
//	34 which parts exist                                           uint16, one bit each
//	36 organization key                                            4 bytes
//	40 positions of the parts that exist, in their order           start, from the first part: 3 bytes; length: uint16
//	.. the parts: the destination, the packed body of /data (data.go), the texts for pages
//
// Most texts for pages also occur in the body of /data and are stored once.
type Record []byte

const (
	expiryAt     = 2
	idAt         = 10
	endsAt       = 26
	ownAt        = 30
	roomAt       = 32
	existingAt   = 34
	orgKeyAt     = 36
	positionsAt  = 40
	positionSize = 5
)

// The parts of a record. The texts for pages follow textParts.
const (
	destinationPart = iota
	dataPart
	textParts
	maxParts = 16 // the bits of a uint16
)

// Texts renders what pages show of a link, for [Record.Text]: at most 14 texts of less than 64 KiB each. destination is where the link
// leads. room is how many bytes of a page the escaped destination may take.
type Texts func(link *catalog.Link, config catalog.AppConfig, destination []byte) (texts []string, room int, err error)

var errTooLarge = errors.New("the link is larger than a record can be")

// New returns the record of a link that was found. base is LINK_BASE_URL.
func New(base string, found origin.Found, render Texts) (Record, error) {
	link := *found.Link
	link.URL = catalog.ShortURL(base, found.OrgKey, found.Host, link.ShortCode)
	id, err := uuid.Parse(link.ID)
	if err != nil {
		return nil, err
	}
	data, err := Marshal(link.Public())
	if err != nil {
		return nil, err
	}
	to, _ := DestinationOf(&link, found.AppConfig)
	texts, room, err := render(&link, found.AppConfig, to.Location)
	if err != nil {
		return nil, err
	}
	own := ownFallback(to, link.FallbackURL)
	parts := [][]byte{destinationPart: to.Location, dataPart: packData(data, id.String(), own)}
	for _, text := range texts {
		parts = append(parts, []byte(text))
	}
	r, err := withParts(parts)
	if err != nil {
		return nil, err
	}
	r[0], r[1] = asByte(found.Suspended), asByte(link.IsActive)
	expiry := int64(catalog.NoExpiry)
	if link.Expiry != nil {
		expiry = link.Expiry.UnixMilli()
	}
	binary.LittleEndian.PutUint64(r[expiryAt:], uint64(expiry))
	copy(r[idAt:], id[:])
	copy(r[orgKeyAt:positionsAt], found.OrgKey)
	binary.LittleEndian.PutUint16(r[endsAt:], uint16(to.pathEnd))
	binary.LittleEndian.PutUint16(r[endsAt+2:], uint16(to.queryEnd))
	binary.LittleEndian.PutUint16(r[ownAt:], uint16(len(own)))
	binary.LittleEndian.PutUint16(r[roomAt:], uint16(room))
	return r, nil
}

// withParts returns a record that has only its parts. A part that occurs within an earlier one is not stored again.
func withParts(parts [][]byte) (Record, error) {
	if len(parts) > maxParts {
		return nil, errTooLarge
	}
	var existing uint16
	var positions, stored []byte
	for part, value := range parts {
		if len(value) == 0 {
			continue
		}
		start := bytes.Index(stored, value)
		if start < 0 {
			start = len(stored)
			stored = append(stored, value...)
		}
		if len(value) >= 1<<16 { // so that every part starts before 1<<24
			return nil, errTooLarge
		}
		existing |= 1 << part
		positions = append(positions, byte(start), byte(start>>8), byte(start>>16), byte(len(value)), byte(len(value)>>8))
	}
	r := make(Record, positionsAt, positionsAt+len(positions)+len(stored))
	binary.LittleEndian.PutUint16(r[existingAt:], existing)
	return append(append(r, positions...), stored...), nil
}

// ownFallback returns the link's own fallback URL if the destination starts with it, otherwise "".
func ownFallback(to Destination, fallback *string) string {
	if fallback != nil && bytes.HasPrefix(to.Location, []byte(*fallback)) {
		return *fallback
	}
	return ""
}

func asByte(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// Missing returns what is known of a code that an organization does not have: the key of the organization. It is not a record of a link.
func Missing(orgKey string) Record { return Record(orgKey) }

// IsMissing reports whether r was made by [Missing]. Then only OrgKey may be called.
func (r Record) IsMissing() bool { return len(r) < positionsAt }

// OrgKey is the key of the organization.
func (r Record) OrgKey() [4]byte {
	if r.IsMissing() {
		return [4]byte(r)
	}
	return [4]byte(r[orgKeyAt:])
}

// Suspended reports whether the link's organization is suspended.
func (r Record) Suspended() bool { return r[0] != 0 }

// Active reports whether the link is active.
func (r Record) Active() bool { return r[1] != 0 }

// Expiry is in milliseconds since 1970, or catalog.NoExpiry.
func (r Record) Expiry() int64 { return int64(binary.LittleEndian.Uint64(r[expiryAt:])) }

// ID is the UUID of the link.
func (r Record) ID() [16]byte { return [16]byte(r[idAt:]) }

// Destination returns where the link leads on the web. Its Location is empty if the link leads nowhere.
func (r Record) Destination() Destination {
	return Destination{
		r.part(destinationPart),
		int(binary.LittleEndian.Uint16(r[endsAt:])), int(binary.LittleEndian.Uint16(r[endsAt+2:])),
	}
}

// WebRoom is how many bytes of a page the escaped destination may take.
func (r Record) WebRoom() int { return int(binary.LittleEndian.Uint16(r[roomAt:])) }

// Text returns the i-th text for pages, nil if it is empty.
func (r Record) Text(i int) []byte { return r.part(textParts + i) }

// part returns a part, nil if it is empty.
func (r Record) part(part int) []byte {
	existing := binary.LittleEndian.Uint16(r[existingAt:])
	if existing>>part&1 == 0 {
		return nil
	}
	position := r[positionsAt+positionSize*bits.OnesCount16(existing&(1<<part-1)):]
	start := int(position[0]) | int(position[1])<<8 | int(position[2])<<16
	start += positionsAt + positionSize*bits.OnesCount16(existing)
	end := start + int(binary.LittleEndian.Uint16(position[3:]))
	return r[start:end:end]
}

// ownFallback returns the link's own fallback URL. It is empty unless the destination starts with it.
func (r Record) ownFallback() []byte {
	return r.part(destinationPart)[:binary.LittleEndian.Uint16(r[ownAt:])]
}
