package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// cursorPage is the response of GET /links with after. Total is nil unless the request wants it.
type cursorPage struct {
	Data       []catalog.LinkWithDomain `json:"data"`
	Limit      int                      `json:"limit"`
	NextCursor *string                  `json:"nextCursor"`
	Total      *int64                   `json:"total,omitempty"`
}

// listLinksAfter serves GET /links with a cursor.
func (s *Server) listLinksAfter(
	x *requestState, r *http.Request, organization catalog.Organization, q *decode.Query, filter store.LinkFilter, withClicks bool,
) error {
	cursor, _ := q.Value("after")
	wantsTotal := q.Boolean("total")
	key, err := s.Store.CursorKey(r.Context())
	if err != nil {
		return err
	}
	cursors := cursorCodec{key: key, organizationID: organization.ID, filter: filter}
	var after *store.LinkPosition
	switch {
	case q.Has("page"):
		q.Add("after", "cannot be combined with page")
	case cursor != "":
		position, ok := cursors.decode(cursor)
		if _, _, formed := splitCursor(cursor); !ok && (!formed || !slices.ContainsFunc(q.Errors, isBound)) {
			q.Add("after", "must be the nextCursor of a list of this organization with the same filters, or empty")
		}
		after = &position
	}
	if err := inOrder(q, "after"); err != nil {
		return err
	}
	withTotal := wantsTotal != nil && *wantsTotal
	links, more, total, err := s.Store.LinksAfter(r.Context(), organization.ID, filter, after, withTotal)
	if err != nil {
		return err
	}
	page := cursorPage{Data: links, Limit: filter.Limit}
	if withTotal {
		page.Total = &total
	}
	if more {
		last := links[len(links)-1]
		next, err := cursors.encode(store.LinkPosition{CreatedAt: last.CreatedAt.Time, ID: last.ID})
		if err != nil {
			return err
		}
		page.NextCursor = &next
	}
	if !withClicks {
		return writeJSON(x, http.StatusOK, page)
	}
	included, err := s.includeClicks(r, organization, links)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, cursorPageWithClicks{included, page})
}

// isBound reports whether the error is about a parameter that cursors are bound to. Without a valid value of it, only the form of a cursor can
// be checked.
func isBound(e catalog.FieldError) bool {
	return !slices.Contains([]string{"after", "limit", "total", "include"}, e.Field)
}

// cursorCodec encodes positions in the list of an organization with a filter as cursors. A cursor does not expire, so its form can never
// change: another one needs another version.
type cursorCodec struct {
	key            []byte
	organizationID string
	filter         store.LinkFilter
}

const (
	cursorVersion = 1
	// A cursor is the version, the time in microseconds and the id, and a part of an HMAC. Its length is a multiple of 3 bytes, so that each
	// character of its base64 form counts.
	cursorPosition = 1 + 8 + 16
	cursorMAC      = 20
)

func (c cursorCodec) encode(p store.LinkPosition) (string, error) {
	id, err := uuid.Parse(p.ID)
	if err != nil {
		return "", err
	}
	cursor := binary.BigEndian.AppendUint64([]byte{cursorVersion}, uint64(p.CreatedAt.UnixMicro()))
	cursor = append(cursor, id[:]...)
	return base64.RawURLEncoding.EncodeToString(append(cursor, c.mac(cursor)...)), nil
}

// decode returns the position. ok is false for a cursor that encode did not make for this organization and filter.
func (c cursorCodec) decode(text string) (p store.LinkPosition, ok bool) {
	position, mac, ok := splitCursor(text)
	if !ok || !hmac.Equal(mac, c.mac(position)) {
		return p, false
	}
	p.CreatedAt = time.UnixMicro(int64(binary.BigEndian.Uint64(position[1:]))).UTC()
	p.ID = uuid.UUID(position[9:]).String()
	return p, true
}

// splitCursor decodes the two parts of a cursor. ok is false for a text that is no cursor of any organization and filter.
func splitCursor(text string) (position, mac []byte, ok bool) {
	if len(text) != base64.RawURLEncoding.EncodedLen(cursorPosition+cursorMAC) { // the decoder ignores line breaks
		return nil, nil, false
	}
	cursor, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(cursor) != cursorPosition+cursorMAC || cursor[0] != cursorVersion {
		return nil, nil, false
	}
	return cursor[:cursorPosition], cursor[cursorPosition:], true
}

// mac authenticates a position for the organization and the filter.
func (c cursorCodec) mac(position []byte) []byte {
	isActive := ""
	if c.filter.IsActive != nil {
		isActive = fmt.Sprint(*c.filter.IsActive)
	}
	bound := digest([]string{c.organizationID, isActive, c.filter.Search, c.filter.Tag, c.filter.Channel, c.filter.DomainID, c.filter.ExternalID})
	h := hmac.New(sha256.New, c.key)
	h.Write(position)
	h.Write(bound[:])
	return h.Sum(nil)[:cursorMAC]
}
