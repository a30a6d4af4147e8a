package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

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
//	30 room for the destination on a page, in bytes           uint16
//	32 places of the parts    each begin and end, 2 × uint32, counted from the first part
//	.. the parts: data, destination, what pages show
//
// Most of what pages show is in the data too, and is not kept twice.
type record []byte

const (
	expiryAt = 2
	idAt     = 10
	endsAt   = 26
	roomAt   = 30
	placesAt = 32
	partsAt  = placesAt + parts*8
)

// The parts of a record: these, and those that fill the slots of pages.
const (
	dataPart = iota
	locationPart
	slotParts
	parts = slotParts + int(slots-visitSlots)
)

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
	r := make(record, partsAt, partsAt+2*len(data))
	r[0], r[1] = asByte(found.Suspended), asByte(link.IsActive)
	expiry := int64(catalog.NoExpiry)
	if link.Expiry != nil {
		expiry = link.Expiry.UnixMilli()
	}
	binary.LittleEndian.PutUint64(r[expiryAt:], uint64(expiry))
	copy(r[idAt:], id[:])
	binary.LittleEndian.PutUint16(r[endsAt:], uint16(to.pathEnd))
	binary.LittleEndian.PutUint16(r[endsAt+2:], uint16(to.queryEnd))
	binary.LittleEndian.PutUint16(r[roomAt:], uint16(values.webRoom()))
	r = r.with(locationPart, to.location).with(dataPart, data)
	for s := visitSlots; s < slots; s++ {
		r = r.with(partOf(s), []byte(values[s]))
	}
	return r, nil
}

// with keeps a part, where it stands already if it does.
func (r record) with(part int, value []byte) record {
	begin := bytes.Index(r[partsAt:], value)
	if begin < 0 {
		begin = len(r) - partsAt
		r = append(r, value...)
	}
	place := r[placesAt+8*part:]
	binary.LittleEndian.PutUint32(place, uint32(begin))
	binary.LittleEndian.PutUint32(place[4:], uint32(begin+len(value)))
	return r
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

func (r record) part(part int) []byte {
	place := r[placesAt+8*part:]
	end := binary.LittleEndian.Uint32(place[4:])
	return r[partsAt:][binary.LittleEndian.Uint32(place):end:end]
}

// destination has an empty location when the link leads nowhere on the web.
func (r record) destination() destination {
	return destination{
		r.part(locationPart),
		int(binary.LittleEndian.Uint16(r[endsAt:])), int(binary.LittleEndian.Uint16(r[endsAt+2:])),
	}
}

// webRoom is how much of a page the destination may take, escaped, in bytes.
func (r record) webRoom() int { return int(binary.LittleEndian.Uint16(r[roomAt:])) }

func (r record) data() []byte { return r.part(dataPart) }

// value returns what the link fills a slot with.
func (r record) value(s slot) []byte { return r.part(partOf(s)) }

func partOf(s slot) int { return slotParts + int(s-visitSlots) }

// fills reports whether the link fills one of two slots.
func (r record) fills(one, other slot) bool { return len(r.value(one)) > 0 || len(r.value(other)) > 0 }

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
