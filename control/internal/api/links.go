package api

import (
	"errors"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// linkPage is the response of GET /links.
type linkPage struct {
	Data  []catalog.LinkWithDomain `json:"data"`
	Total int64                    `json:"total"`
	Page  int                      `json:"page"`
	Limit int                      `json:"limit"`
}

// deletedResponse is the response of a delete.
type deletedResponse struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// listLinks serves GET /links: a page by its number, or one that follows a cursor.
func (s *Server) listLinks(x *requestState, r *http.Request, organization catalog.Organization) error {
	q := decode.ReadQuery(r.URL.RawQuery)
	filter, withClicks := readFilter(q), readInclude(q)
	if q.Has("after") {
		return s.listLinksAfter(x, r, organization, q, filter, withClicks)
	}
	filter.Page = q.Integer("page", 1, 1, maxPage)
	if err := inOrder(q, "page"); err != nil {
		return err
	}
	links, total, err := s.Store.Links(r.Context(), organization.ID, filter)
	if err != nil {
		return err
	}
	page := linkPage{Data: links, Total: total, Page: filter.Page, Limit: filter.Limit}
	if !withClicks {
		return writeJSON(x, http.StatusOK, page)
	}
	included, err := s.includeClicks(r, organization, links)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, linkPageWithClicks{included, page})
}

// getLink serves GET /links/{id} and GET /links/external/{externalId}.
func (s *Server) getLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	target, badPath := pathLink(r)
	withClicks, badQuery := readIncludeOf(r)
	conditions, badHeaders := readPreconditions(r.Header)
	if err := together(badHeaders, decode.Join(badPath, badQuery)); err != nil {
		return err
	}
	link, err := s.link(x, r, organization, target)
	if err != nil {
		return err
	}
	return s.sendLink(x, r, organization, conditions, link, withClicks)
}

// sendLink responds to a read of a link.
func (s *Server) sendLink(
	x *requestState, r *http.Request, organization catalog.Organization, conditions preconditions, link catalog.LinkWithDomain, withClicks bool,
) error {
	tag := link.ETag()
	notModified, err := conditions.ofRead(tag)
	if err != nil {
		return err
	}
	var body any = link
	if withClicks {
		included, err := s.includeClicks(r, organization, []catalog.LinkWithDomain{link})
		if err != nil {
			return err
		}
		body = included[0]
	}
	x.Header().Set("ETag", tag) // an error has none
	if notModified {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	return writeJSON(x, http.StatusOK, body)
}

// link returns the link in the path, which is target.
func (s *Server) link(x *requestState, r *http.Request, organization catalog.Organization, target store.LinkRef) (link catalog.LinkWithDomain, err error) {
	switch {
	case x.link != nil:
		return *x.link, nil
	case x.linkRead:
		err = store.ErrNotFound
	case target.ExternalID != "":
		link, err = s.Store.LinkByExternalID(r.Context(), organization.ID, target.ExternalID)
	default:
		link, err = s.Store.Link(r.Context(), organization.ID, target.ID)
	}
	return link, s.awaitDeleted(x, r, organization, target, err)
}

// awaitDeleted returns err. If err is store.ErrNotFound and the link was deleted lately, it first waits until all edges apply that: a client that
// got 404 for a link must not see the link resolve later.
func (s *Server) awaitDeleted(x *requestState, r *http.Request, organization catalog.Organization, link store.LinkRef, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	change, deletedErr := s.Store.DeletedLink(r.Context(), organization.ID, link)
	if deletedErr != nil {
		return deletedErr
	}
	if change.XID != 0 {
		x.Header().Set(relay.Header, string(s.Relay.Await(r.Context(), change)))
	}
	return err
}

// pathLink returns the link in the path, by the parameter that the route has.
func pathLink(r *http.Request) (store.LinkRef, error) {
	if chi.URLParam(r, "externalId") != "" {
		externalID, err := pathExternalID(r)
		return store.LinkRef{ExternalID: externalID}, err
	}
	id, err := pathID(r)
	return store.LinkRef{ID: id}, err
}

// pathID returns the id in the path in lower case.
func pathID(r *http.Request) (string, error) {
	id, ok := catalog.ValidUUID(chi.URLParam(r, "id"))
	if !ok {
		return "", decode.FieldError("id", "must be a UUID")
	}
	return id, nil
}

// The bounds of the query of GET /links. Every page up to maxPage, the largest number that JSON represents exactly, has an offset in
// Postgres.
const (
	defaultLimit = 20
	maxLimit     = 100
	maxPage      = 1<<53 - 1
	maxSearch    = catalog.MaxPath
)

// readFilter reads what both forms of GET /links have in their queries.
func readFilter(q *decode.Query) store.LinkFilter {
	return store.LinkFilter{
		Limit:      q.Integer("limit", defaultLimit, 1, maxLimit),
		IsActive:   q.Boolean("isActive"),
		Search:     q.Text("search", maxSearch),
		Tag:        q.Text("tag", catalog.MaxTag),
		Channel:    decode.Parse(q, "channel", "", parseChannel, "must be a known channel"),
		DomainID:   decode.Parse(q, "domainId", "", catalog.ValidUUID, "must be a UUID"),
		ExternalID: decode.Parse(q, "externalId", "", parseExternalID, "must be an external id as links have them"),
	}
}

// inOrder returns the errors of a query with those of the parameter first, as the document lists it.
func inOrder(q *decode.Query, first string) error {
	if i := slices.IndexFunc(q.Errors, func(e catalog.FieldError) bool { return e.Field == first }); i > 0 {
		found := q.Errors[i]
		q.Errors = slices.Insert(slices.Delete(q.Errors, i, i+1), 0, found)
	}
	return q.Err()
}

func parseExternalID(s string) (string, bool) { return s, catalog.CheckExternalID(s) == nil }

func parseChannel(s string) (string, bool) {
	return s, slices.Contains(catalog.Channels, s)
}
