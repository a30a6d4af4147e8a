package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/google/uuid"

	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/replica"
	"deeplink/shared/catalog"
)

// record is all that the answers to one link are made of, in one piece of memory without pointers. It is made when the link is
// loaded, shared by all requests and never changed; what its methods return is part of it.
//
//	0  suspended, active      2 bytes of 0 or 1
//	2  expiry                 int64, milliseconds since 1970, or catalog.NoExpiry
//	10 id                     16 bytes
//	26 ends of the path and of the query of the destination   2 × uint16
//	30 how much of the destination is the link's own URL      uint16
//	32 room for the destination on a page, in bytes           uint16
//	34 which parts there are                                  uint16, a bit for each
//	36 places of these, in their order                        begin, counted from the first part: 3 bytes; length: uint16
//	.. the parts: where the link leads, its data (recorddata.go), what pages show
//
// What pages show is mostly in the data too, and is not kept twice.
type record []byte

const (
	expiryAt  = 2
	idAt      = 10
	endsAt    = 26
	ownAt     = 30
	roomAt    = 32
	whichAt   = 34
	placesAt  = 36
	placeSize = 5
)

// The parts of a record: these, and those that fill the slots of pages.
const (
	locationPart = iota
	dataPart
	slotParts
	parts = slotParts + int(slots-visitSlots)
)

var _ [16 - parts]struct{} // each has a bit

// newRecord renders the link that was found. base is LINK_BASE_URL.
func newRecord(base string, found origin.Found) (record, error) {
	link := *found.Link
	link.URL = catalog.ShortURL(base, found.OrgKey, found.Host, link.ShortCode)
	id, err := uuid.Parse(link.ID)
	if err != nil {
		return nil, err
	}
	data, err := renderData(link)
	if err != nil {
		return nil, err
	}
	to, _ := destinationOf(&link, found.AppConfig)
	values, err := readPageValues(&link, found.AppConfig, to)
	if err != nil {
		return nil, err
	}
	own := ownOf(to, link.FallbackURL)
	of := [parts][]byte{locationPart: to.location, dataPart: packData(data, id.String(), own)}
	for s := visitSlots; s < slots; s++ {
		of[partOf(s)] = []byte(values[s])
	}
	r, err := withParts(of)
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
	binary.LittleEndian.PutUint16(r[endsAt:], uint16(to.pathEnd))
	binary.LittleEndian.PutUint16(r[endsAt+2:], uint16(to.queryEnd))
	binary.LittleEndian.PutUint16(r[ownAt:], uint16(len(own)))
	binary.LittleEndian.PutUint16(r[roomAt:], uint16(values.webRoom()))
	return r, nil
}

var errTooLarge = errors.New("a link is larger than a record can be")

// withParts returns a record that has nothing but its parts. One that stands in another is not kept again.
func withParts(of [parts][]byte) (record, error) {
	var which uint16
	var places, kept []byte
	for part, value := range of {
		if len(value) == 0 {
			continue
		}
		begin := bytes.Index(kept, value)
		if begin < 0 {
			begin = len(kept)
			kept = append(kept, value...)
		}
		if len(value) >= 1<<16 { // so that all of them begin before 1<<24
			return nil, errTooLarge
		}
		which |= 1 << part
		places = append(places, byte(begin), byte(begin>>8), byte(begin>>16), byte(len(value)), byte(len(value)>>8))
	}
	r := make(record, placesAt, placesAt+len(places)+len(kept))
	binary.LittleEndian.PutUint16(r[whichAt:], which)
	return append(append(r, places...), kept...), nil
}

// ownOf returns the link's own fallback URL when where it leads begins with it, otherwise nothing.
func ownOf(to destination, fallback *string) string {
	if fallback != nil && bytes.HasPrefix(to.location, []byte(*fallback)) {
		return *fallback
	}
	return ""
}

// destinationOf returns where the link leads on the web: its own fallback URL, or the organization's.
func destinationOf(link *catalog.Link, config catalog.AppConfig) (destination, bool) {
	for _, fallback := range []*string{link.FallbackURL, config.FallbackURL} {
		if fallback == nil {
			continue
		}
		if to, ok := newDestination(*fallback, link); ok {
			return to, true
		}
	}
	return destination{}, false
}

func asByte(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func (r record) suspended() bool { return r[0] != 0 }
func (r record) active() bool    { return r[1] != 0 }

// expiry is in milliseconds since 1970, or catalog.NoExpiry.
func (r record) expiry() int64 { return int64(binary.LittleEndian.Uint64(r[expiryAt:])) }

func (r record) id() [16]byte { return [16]byte(r[idAt:]) }

// part returns what there is of a part, nil for nothing.
func (r record) part(part int) []byte {
	if !r.has(part) {
		return nil
	}
	which := r.which()
	place := r[placesAt+placeSize*bits.OnesCount16(which&(1<<part-1)):]
	begin := int(place[0]) | int(place[1])<<8 | int(place[2])<<16
	begin += placesAt + placeSize*bits.OnesCount16(which)
	end := begin + int(binary.LittleEndian.Uint16(place[3:]))
	return r[begin:end:end]
}

// has reports whether there is anything of a part.
func (r record) has(part int) bool { return r.which()>>part&1 != 0 }

// which has a bit for each part there is.
func (r record) which() uint16 { return binary.LittleEndian.Uint16(r[whichAt:]) }

// destination has an empty location when the link leads nowhere on the web.
func (r record) destination() destination {
	return destination{
		r.part(locationPart),
		int(binary.LittleEndian.Uint16(r[endsAt:])), int(binary.LittleEndian.Uint16(r[endsAt+2:])),
	}
}

// webRoom is how much of a page the destination may take, escaped, in bytes.
func (r record) webRoom() int { return int(binary.LittleEndian.Uint16(r[roomAt:])) }

// own is the link's own fallback URL, empty unless where it leads begins with it.
func (r record) own() []byte { return r.part(locationPart)[:binary.LittleEndian.Uint16(r[ownAt:])] }

// value returns what the link fills a slot with.
func (r record) value(s slot) []byte { return r.part(partOf(s)) }

func partOf(s slot) int { return slotParts + int(s-visitSlots) }

// fills reports whether the link fills one of two slots.
func (r record) fills(one, other slot) bool { return r.has(partOf(one)) || r.has(partOf(other)) }

// loadFrom makes the replica keep records, and association files under the codes that are their paths. pages hears which domains
// want some.
func loadFrom(from *origin.Origin, base string, pages *errorPages) replica.Load {
	return func(ctx context.Context, domain, code string) (replica.Answer, error) {
		if file := associationFileOf(code); file >= 0 {
			return associationFiles[file].load(ctx, from, domain)
		}
		question := pages.ask(domain)
		defer question.end()
		found, err := from.Link(ctx, domain, code)
		if err != nil {
			return replica.Answer{}, err
		}
		question.heard(found.AppConfig.HTMLErrorPages)
		if found.Link == nil {
			return replica.Answer{OrgKey: found.OrgKey}, nil
		}
		r, err := newRecord(base, found)
		if err != nil {
			return replica.Answer{}, fmt.Errorf("render %s/%s: %w", domain, code, err)
		}
		return replica.Answer{OrgKey: found.OrgKey, Value: r}, nil
	}
}
