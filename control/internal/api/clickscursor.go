package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"deeplink/control/internal/clicks"
	"deeplink/control/internal/decode"
)

// clickCursor encodes places in the pages of clicks. A cursor is authenticated together with the organization and all parameters except limit.
type clickCursor struct {
	key   []byte
	bound [sha256.Size]byte
	// sent is the cursor in the request, "" if there is none.
	sent  string
	given struct{ from, to string }
}

// newClickCursor returns the cursor of a request, and adds an error if it cannot be one.
func newClickCursor(q *decode.Query, kind, organizationID string, c clickRange, more ...string) (cursor clickCursor) {
	cursor.given.from, cursor.given.to = q.Given("from"), q.Given("to")
	parts := append([]string{"clicks " + kind, organizationID, cursor.given.from, cursor.given.to, c.Location.String(), fmt.Sprint(c.Classes), fmt.Sprint(c.Outcomes),
		c.Links.LinkID, c.Links.Tag, c.Links.Channel, c.Links.DomainID}, more...)
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	h.Sum(cursor.bound[:0])
	cursor.sent = decode.Parse(q, "after", "", func(s string) (string, bool) { return s, clickCursorForm.MatchString(s) },
		strings.TrimPrefix(errClickCursor.Fields[0].Message, "after "))
	return cursor
}

const (
	clickCursorVersion = 1
	clickCursorMAC     = 16
)

func (c clickCursor) seal(place []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(place, c.mac(place)...))
}

// open returns the place in the cursor that was sent, without its version. ok is false for a cursor that seal did not make for such a request.
func (c clickCursor) open() (place []byte, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(c.sent)
	if err != nil || len(raw) < 1+clickCursorMAC {
		return nil, false
	}
	place, mac := raw[:len(raw)-clickCursorMAC], raw[len(raw)-clickCursorMAC:]
	if !hmac.Equal(mac, c.mac(place)) || place[0] != clickCursorVersion {
		return nil, false
	}
	return place[1:], true
}

func (c clickCursor) mac(place []byte) []byte {
	h := hmac.New(sha256.New, c.key)
	h.Write(c.bound[:])
	h.Write(place)
	return h.Sum(nil)[:clickCursorMAC]
}

// figurePlace is where a page of figures starts: at Start in a series, After a group in groups.
type figurePlace struct {
	From, To, Start time.Time
	After           *clicks.GroupPlace
}

func (c clickCursor) encodeFigures(q clicks.FigureQuery, p figurePlace) string {
	place := appendTimes([]byte{clickCursorVersion}, p.From, p.To, p.Start)
	if p.After != nil {
		place = binary.BigEndian.AppendUint64(place, uint64(p.After.Clicks))
		place = binary.BigEndian.AppendUint32(place, uint32(p.After.Skip))
		if p.After.Key == nil {
			place = append(place, 0)
		} else {
			place = append(append(place, 1), p.After.Key...)
		}
	}
	return c.seal(place)
}

func (c clickCursor) decodeFigures(q clicks.FigureQuery) (p figurePlace, ok bool) {
	place, ok := c.open()
	const times, group = 3 * 8, 8 + 4 + 1
	if !ok || len(place) < times {
		return p, false
	}
	p.From, p.To, p.Start = timeAt(place), timeAt(place[8:]), timeAt(place[16:])
	place = place[times:]
	if q.GroupBy == clicks.NoGroups {
		return p, len(place) == 0
	}
	if len(place) < group {
		return p, false
	}
	p.After = &clicks.GroupPlace{Clicks: int64(binary.BigEndian.Uint64(place)), Skip: int(binary.BigEndian.Uint32(place[8:]))}
	if place[group-1] == 1 {
		p.After.Key = append([]byte{}, place[group:]...)
	}
	return p, true
}

// rawPlace is where a page of clicks starts.
type rawPlace struct {
	From, To time.Time
	After    clicks.Position
}

func (c clickCursor) encodeRaw(p rawPlace) string {
	place := appendTimes([]byte{clickCursorVersion}, p.From, p.To, p.After.At)
	place = append(place, p.After.Log[:]...)
	place = binary.BigEndian.AppendUint32(place, uint32(p.After.Sequence))
	return c.seal(binary.BigEndian.AppendUint32(place, uint32(p.After.Ordinal)))
}

func (c clickCursor) decodeRaw() (p rawPlace, ok bool) {
	place, ok := c.open()
	if !ok || len(place) != 3*8+16+2*4 {
		return p, false
	}
	p.From, p.To, p.After.At = timeAt(place), timeAt(place[8:]), timeAt(place[16:])
	p.After.Log = uuid.UUID(place[24:40])
	p.After.Sequence, p.After.Ordinal = int32(binary.BigEndian.Uint32(place[40:])), int32(binary.BigEndian.Uint32(place[44:]))
	return p, true
}

// appendTimes appends times in milliseconds.
func appendTimes(b []byte, times ...time.Time) []byte {
	for _, at := range times {
		b = binary.BigEndian.AppendUint64(b, uint64(at.UnixMilli()))
	}
	return b
}

func timeAt(b []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(b))).UTC() }
