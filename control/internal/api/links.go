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

// createLink serves POST /links.
func (s *Server) createLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	body, err := readBody(x, r, decode.JSON)
	if err != nil {
		return err
	}
	wanted, err := catalog.ReadLink(body)
	if err != nil {
		return err
	}
	link, change, err := s.Store.CreateLink(r.Context(), x.actor, organization.ID, x.require, wanted)
	if err != nil {
		return err
	}
	x.Header().Set(relay.Header, string(s.Relay.AwaitCreate(r.Context(), change)))
	return writeJSON(x, http.StatusCreated, link)
}

// listLinks serves GET /links.
func (s *Server) listLinks(x *requestState, r *http.Request, organization catalog.Organization) error {
	filter, err := readFilter(r.URL.RawQuery)
	if err != nil {
		return err
	}
	links, total, err := s.Store.Links(r.Context(), organization.ID, filter)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, linkPage{Data: links, Total: total, Page: filter.Page, Limit: filter.Limit})
}

// getLink serves GET /links/{id}.
func (s *Server) getLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	link, err := s.link(x, r, organization, id)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, link)
}

// updateLink serves PATCH /links/{id}.
func (s *Server) updateLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	id, badID := pathID(r)
	patch, badPatch := readPatch(x, r)
	if err := decode.Join(badID, badPatch); err != nil {
		return err
	}
	link, change, err := s.Store.UpdateLink(r.Context(), x.actor, organization.ID, x.require, id, patch)
	if err != nil {
		return s.awaitDeleted(x, r, organization, id, err)
	}
	x.Header().Set(relay.Header, string(s.Relay.Await(r.Context(), change)))
	return writeJSON(x, http.StatusOK, link)
}

func readPatch(x *requestState, r *http.Request) (catalog.Patch, error) {
	body, err := readBody(x, r, decode.JSON, decode.MergePatch)
	if err != nil {
		return catalog.Patch{}, err
	}
	return catalog.ReadPatch(body)
}

// deleteLink serves DELETE /links/{id}.
func (s *Server) deleteLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	change, err := s.Store.DeleteLink(r.Context(), x.actor, organization.ID, x.require, id)
	if err != nil {
		return s.awaitDeleted(x, r, organization, id, err)
	}
	x.Header().Set(relay.Header, string(s.Relay.Await(r.Context(), change)))
	return writeJSON(x, http.StatusOK, deletedResponse{ID: id, Deleted: true})
}

// link returns the link with the id in the path.
func (s *Server) link(x *requestState, r *http.Request, organization catalog.Organization, id string) (catalog.LinkWithDomain, error) {
	if x.link != nil {
		return *x.link, nil
	}
	link, err := s.Store.Link(r.Context(), organization.ID, id)
	if err != nil {
		return catalog.LinkWithDomain{}, s.awaitDeleted(x, r, organization, id, err)
	}
	return link, nil
}

// awaitDeleted returns err. If err is store.ErrNotFound and the link was deleted lately, it first waits until all edges apply that: a client that
// got 404 for a link must not see the link resolve later.
func (s *Server) awaitDeleted(x *requestState, r *http.Request, organization catalog.Organization, id string, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	change, deletedErr := s.Store.Deleted(r.Context(), organization.ID, id)
	if deletedErr != nil {
		return deletedErr
	}
	if change.XID != 0 {
		x.Header().Set(relay.Header, string(s.Relay.Await(r.Context(), change)))
	}
	return err
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

// readFilter reads the query of GET /links. The error is a catalog.Invalid.
func readFilter(raw string) (store.LinkFilter, error) {
	q := decode.ReadQuery(raw)
	filter := store.LinkFilter{
		Page:     q.Integer("page", 1, 1, maxPage),
		Limit:    q.Integer("limit", defaultLimit, 1, maxLimit),
		IsActive: q.Boolean("isActive"),
		Search:   q.Text("search", maxSearch),
		Tag:      q.Text("tag", catalog.MaxTag),
		Channel:  decode.Parse(q, "channel", "", parseChannel, "must be a known channel"),
		DomainID: decode.Parse(q, "domainId", "", catalog.ValidUUID, "must be a UUID"),
	}
	return filter, q.Err()
}

func parseChannel(s string) (string, bool) {
	return s, slices.Contains(catalog.Channels, s)
}
