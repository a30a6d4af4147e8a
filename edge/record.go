package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/replica"
	"deeplink/shared/catalog"
)

// record is all that the answers to one link are made of, in one piece of memory without pointers. It is made when the link is
// loaded, shared by all requests and never changed; what its methods return is part of it.
//
//	0  suspended, active         2 bytes of 0 or 1
//	2  expiry                    int64, milliseconds since 1970, or catalog.NoExpiry
//	10 ends of the parts below   6 × uint32, each counted from the first part
//	34 destination: path, query, fragment; data; landing page before and after its nonce
//
// A link without destination has a landing page.
type record []byte

const (
	expiryAt = 2
	endsAt   = 10
	partsAt  = 34
)

// The parts of a record, in their order.
const (
	pathPart = iota
	queryPart
	fragmentPart
	dataPart
	headPart
	tailPart
	parts
)

// newRecord renders the link that was found. base is LINK_BASE_URL.
func newRecord(base string, found origin.Found) (record, error) {
	link := *found.Link
	link.URL = catalog.ShortURL(base, found.OrgKey, found.Host, link.ShortCode)
	data, err := renderData(link)
	if err != nil {
		return nil, err
	}
	to, ok := destinationOf(&link, found.AppConfig)
	var head, tail []byte
	if !ok {
		if head, tail, err = renderLanding(&link, found.AppConfig); err != nil {
			return nil, err
		}
	}
	r := make(record, partsAt, partsAt+len(to.location)+len(data)+len(head)+len(tail))
	r[0], r[1] = asByte(found.Suspended), asByte(link.IsActive)
	expiry := int64(catalog.NoExpiry)
	if link.Expiry != nil {
		expiry = link.Expiry.UnixMilli()
	}
	binary.LittleEndian.PutUint64(r[expiryAt:], uint64(expiry))
	for i, part := range [parts][]byte{
		to.location[:to.pathEnd], to.location[to.pathEnd:to.queryEnd], to.location[to.queryEnd:], data, head, tail,
	} {
		r = append(r, part...)
		binary.LittleEndian.PutUint32(r[endsAt+4*i:], uint32(len(r)-partsAt))
	}
	return r, nil
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

func (r record) end(part int) int {
	if part < 0 {
		return 0
	}
	return int(binary.LittleEndian.Uint32(r[endsAt+4*part:]))
}

func (r record) part(part int) []byte {
	return r[partsAt:][r.end(part-1):r.end(part)]
}

// destination has an empty location when the link has a landing page.
func (r record) destination() destination {
	return destination{r[partsAt:][:r.end(fragmentPart)], r.end(pathPart), r.end(queryPart)}
}

func (r record) data() []byte { return r.part(dataPart) }

// landing returns the page before and after its nonce.
func (r record) landing() (head, tail []byte) { return r.part(headPart), r.part(tailPart) }

// loadFrom makes the replica keep records.
func loadFrom(from *origin.Origin, base string) replica.Load {
	return func(ctx context.Context, domain, code string) (replica.Answer, error) {
		found, err := from.Link(ctx, domain, code)
		if err != nil || found.Link == nil {
			return replica.Answer{OrgKey: found.OrgKey}, err
		}
		r, err := newRecord(base, found)
		if err != nil {
			return replica.Answer{}, fmt.Errorf("render %s/%s: %w", domain, code, err)
		}
		return replica.Answer{OrgKey: found.OrgKey, Value: r}, nil
	}
}
