package main

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// openedSession is the answer of POST /sdk/session (decisions.md 7).
type openedSession struct {
	store.Session
	// Link is what openedUrl leads to, nil when that is nothing of this organization, or does not resolve.
	Link *catalog.PublicLink `json:"link"`
}

// openSession answers POST /sdk/session.
func (s *server) openSession(x *exchange, r *http.Request, organization catalog.Organization) error {
	body, err := readBody(x, r, mediaJSON)
	if err != nil {
		return err
	}
	report, err := readSessionReport(body)
	if err != nil {
		return err
	}
	link, err := s.openedLink(r, organization, report.openedURL)
	if err != nil {
		return err
	}
	var linkID *string
	if link != nil {
		linkID = &link.ID
	}
	session, err := s.store.OpenSession(r.Context(), organization.ID, report.device, linkID)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, openedSession{session, link})
}

// openedLink returns the link of the organization that the URL leads to, or nil.
func (s *server) openedLink(r *http.Request, organization catalog.Organization, opened *string) (*catalog.PublicLink, error) {
	if opened == nil {
		return nil, nil
	}
	place, ok := s.shortURLs.place(*opened)
	if !ok {
		return nil, nil
	}
	link, err := s.store.ResolvedLink(r.Context(), organization.ID, place)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	public := link.Public()
	return &public, nil
}

// identified is the answer of POST /sdk/identity and of POST /sdk/identity/clear.
type identified struct {
	DeviceID string  `json:"deviceId"`
	UserID   *string `json:"userId"`
}

// identifyDevice answers POST /sdk/identity.
func (s *server) identifyDevice(x *exchange, r *http.Request, organization catalog.Organization) error {
	body, err := readBody(x, r, mediaJSON)
	if err != nil {
		return err
	}
	o := readObject(body)
	device, user, traits := o.deviceID(), o.needed("userId", o.sized("userId", 1, maxUserID)), o.object("traits")
	if err := o.err(); err != nil {
		return err
	}
	if err := s.store.Identify(r.Context(), organization.ID, device, user, traits); err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, identified{device, &user})
}

// clearIdentity answers POST /sdk/identity/clear. A device that is unknown has no user either.
func (s *server) clearIdentity(x *exchange, r *http.Request, organization catalog.Organization) error {
	body, err := readBody(x, r, mediaJSON)
	if err != nil {
		return err
	}
	o := readObject(body)
	device := o.deviceID()
	if err := o.err(); err != nil {
		return err
	}
	if err := s.store.ClearIdentity(r.Context(), organization.ID, device); err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, identified{DeviceID: device})
}

// receipt is the answer of POST /sdk/events. Its parts add up to the batch.
type receipt struct {
	Accepted   int         `json:"accepted"`
	Duplicates int         `json:"duplicates"`
	Rejected   []rejection `json:"rejected"`
}

// recordEvents answers POST /sdk/events. What it answers is committed.
func (s *server) recordEvents(x *exchange, r *http.Request, organization catalog.Organization) error {
	body, err := readBytes(x, r, mediaJSON)
	if err != nil {
		return err
	}
	batch, rejected, repeated, err := readBatch(body)
	if err != nil {
		s.metrics.reported(receipt{Rejected: rejected})
		return err
	}
	for i := range batch.Events {
		if e := &batch.Events[i]; e.ID == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return err
			}
			e.ID = id.String()
		}
	}
	stored, err := s.store.InsertEvents(r.Context(), organization.ID, batch)
	if err != nil {
		return err
	}
	if rejected == nil {
		rejected = []rejection{}
	}
	answer := receipt{Accepted: stored, Duplicates: len(batch.Events) - stored + repeated, Rejected: rejected}
	s.metrics.reported(answer)
	return writeJSON(x, http.StatusOK, answer)
}
