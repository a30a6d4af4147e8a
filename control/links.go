package main

import (
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// page is the answer of a list (interface.md 4.1).
type page struct {
	Data  []catalog.LinkWithDomain `json:"data"`
	Total int64                    `json:"total"`
	Page  int                      `json:"page"`
	Limit int                      `json:"limit"`
}

// deletion is the answer of a delete (decisions.md 1).
type deletion struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// createLink answers POST /links.
func (s *server) createLink(x *exchange, r *http.Request, organization catalog.Organization) error {
	body, err := readBody(x, r, mediaJSON)
	if err != nil {
		return err
	}
	wanted, err := catalog.ReadLink(body)
	if err != nil {
		return err
	}
	link, change, err := s.store.By(x.actor).CreateLink(r.Context(), organization, wanted)
	if err != nil {
		return err
	}
	x.Header().Set(relay.Header, string(s.relay.AwaitCreate(r.Context(), change)))
	return writeJSON(x, http.StatusCreated, link)
}

// listLinks answers GET /links.
func (s *server) listLinks(x *exchange, r *http.Request, organization catalog.Organization) error {
	filter, err := readFilter(r.URL.RawQuery)
	if err != nil {
		return err
	}
	links, total, err := s.store.Links(r.Context(), organization.ID, filter)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, page{Data: links, Total: total, Page: filter.Page, Limit: filter.Limit})
}

// getLink answers GET /links/{id}.
func (s *server) getLink(x *exchange, r *http.Request, organization catalog.Organization) error {
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

// updateLink answers PATCH /links/{id}.
func (s *server) updateLink(x *exchange, r *http.Request, organization catalog.Organization) error {
	id, badID := pathID(r)
	patch, badPatch := readPatch(x, r)
	if err := invalid(badID, badPatch); err != nil {
		return err
	}
	link, change, err := s.store.By(x.actor).UpdateLink(r.Context(), organization.ID, id, patch)
	if err != nil {
		return s.gone(x, r, organization, id, err)
	}
	x.Header().Set(relay.Header, string(s.relay.Await(r.Context(), change)))
	return writeJSON(x, http.StatusOK, link)
}

func readPatch(x *exchange, r *http.Request) (catalog.Patch, error) {
	body, err := readBody(x, r, mediaJSON, mediaMergePatch)
	if err != nil {
		return catalog.Patch{}, err
	}
	return catalog.ReadPatch(body)
}

// deleteLink answers DELETE /links/{id}.
func (s *server) deleteLink(x *exchange, r *http.Request, organization catalog.Organization) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	change, err := s.store.By(x.actor).DeleteLink(r.Context(), organization.ID, id)
	if err != nil {
		return s.gone(x, r, organization, id, err)
	}
	x.Header().Set(relay.Header, string(s.relay.Await(r.Context(), change)))
	return writeJSON(x, http.StatusOK, deletion{ID: id, Deleted: true})
}

// link returns the link with the id, which is that of the path.
func (s *server) link(x *exchange, r *http.Request, organization catalog.Organization, id string) (catalog.LinkWithDomain, error) {
	if x.link != nil {
		return *x.link, nil
	}
	link, err := s.store.Link(r.Context(), organization.ID, id)
	if err != nil {
		return catalog.LinkWithDomain{}, s.gone(x, r, organization, id, err)
	}
	return link, nil
}

// gone returns err. When it says that the link is not there and that is news, it first waits until the edges know it too:
// whoever is told that a link is gone must not see it resolve afterwards (freshness.md, Control, 4).
func (s *server) gone(x *exchange, r *http.Request, organization catalog.Organization, id string, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	change, deletedErr := s.store.Deleted(r.Context(), organization.ID, id)
	if deletedErr != nil {
		return deletedErr
	}
	if change.XID != 0 {
		x.Header().Set(relay.Header, string(s.relay.Await(r.Context(), change)))
	}
	return err
}

// pathID returns the id in the path, in lower case.
func pathID(r *http.Request) (string, error) {
	id, ok := catalog.ValidUUID(chi.URLParam(r, "id"))
	if !ok {
		return "", fault("id", "must be a UUID")
	}
	return id, nil
}
