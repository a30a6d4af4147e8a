package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// openedSession is the answer of POST /sdk/session (decisions.md 7).
type openedSession struct {
	store.Session
	// Link is what openedUrl leads to, nil when that is nothing of this organization, or does not resolve.
	Link *catalog.PublicLink `json:"link"`
}

// phoneTimeout bounds how long a phone may take for the body of a request: at 2.2 KB a second that is 64 KiB. Nobody is waited for
// without a good key that is within its limits, so for at most 660 bodies of a key at once.
const phoneTimeout = 30 * time.Second

// reported answers a report, which is what a phone sends, for the organization whose key it carries.
type reported func(x *exchange, r *http.Request, organization catalog.Organization, report []byte) error

// withReport lets requests with a client key through to h, as withKey does.
func (s *server) withReport(surface ratelimit.Surface, h reported) handler {
	return s.withKey(keysOf(s.phones), apikey.Client, surface, unhurried(h))
}

// unhurried gives a phone phoneTimeout for its report, and h all of requestTimeout once it is there.
func unhurried(h reported) authorized {
	return func(x *exchange, r *http.Request, organization catalog.Organization) error {
		connection := http.NewResponseController(x)
		// An error means that the connection is gone, which reading will tell.
		_ = connection.SetReadDeadline(time.Now().Add(phoneTimeout))
		_ = connection.SetWriteDeadline(time.Now().Add(phoneTimeout + writeTimeout))
		report, err := readBytes(x, r, mediaJSON)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(x.client, requestTimeout)
		defer cancel()
		return h(x, r.WithContext(ctx), organization, report)
	}
}

// openSession answers POST /sdk/session.
func (s *server) openSession(x *exchange, r *http.Request, organization catalog.Organization, report []byte) error {
	told, err := readSessionReport(report)
	if err != nil {
		return err
	}
	link, err := s.openedLink(r, organization, told.openedURL)
	if err != nil {
		return err
	}
	var linkID *string
	if link != nil {
		linkID = &link.ID
	}
	session, err := s.phones.OpenSession(r.Context(), organization.ID, told.device, linkID)
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
	link, err := s.phones.ResolvedLink(r.Context(), organization.ID, place)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	public := link.Public()
	return &public, nil
}

// identity is the answer of POST /sdk/identity and of POST /sdk/identity/clear.
type identity struct {
	DeviceID string  `json:"deviceId"`
	UserID   *string `json:"userId"`
}

// identifyDevice answers POST /sdk/identity.
func (s *server) identifyDevice(x *exchange, r *http.Request, organization catalog.Organization, report []byte) error {
	o, err := readReport(report)
	if err != nil {
		return err
	}
	device, user, traits := o.deviceID(), o.needed("userId", o.sized("userId", 1, maxUserID)), o.object("traits")
	if err := o.err(); err != nil {
		return err
	}
	if err := s.phones.Identify(r.Context(), organization.ID, device, user, traits); err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, identity{device, &user})
}

// clearIdentity answers POST /sdk/identity/clear. A device that is unknown has no user either.
func (s *server) clearIdentity(x *exchange, r *http.Request, organization catalog.Organization, report []byte) error {
	o, err := readReport(report)
	if err != nil {
		return err
	}
	device := o.deviceID()
	if err := o.err(); err != nil {
		return err
	}
	if err := s.phones.ClearIdentity(r.Context(), organization.ID, device); err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, identity{DeviceID: device})
}

// receipt is the answer of POST /sdk/events. Its parts add up to the batch.
type receipt struct {
	Accepted   int         `json:"accepted"`
	Duplicates int         `json:"duplicates"`
	Rejected   []rejection `json:"rejected"`
}

// recordEvents answers POST /sdk/events. What it answers is committed.
func (s *server) recordEvents(x *exchange, r *http.Request, organization catalog.Organization, report []byte) error {
	batch, rejected, repeated, err := readBatch(report)
	if err != nil {
		s.metrics.recorded(receipt{Rejected: rejected})
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
	stored, err := s.phones.InsertEvents(r.Context(), organization.ID, batch)
	if err != nil {
		return err
	}
	if rejected == nil {
		rejected = []rejection{}
	}
	answer := receipt{Accepted: stored, Duplicates: len(batch.Events) - stored + repeated, Rejected: rejected}
	s.metrics.recorded(answer)
	return writeJSON(x, http.StatusOK, answer)
}
