package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// sessionResponse is the response of POST /sdk/session.
type sessionResponse struct {
	store.Session
	// Link is the link of openedUrl, nil when it is not one of this organization or does not resolve.
	Link *catalog.PublicLink `json:"link"`
}

// sdkBodyTimeout bounds how long an app may take to send a body: 64 KiB at 2.2 KB/s. Only a request with a valid key within its rate limit gets
// this long, so that at most 660 bodies of a key are open at the same time.
const sdkBodyTimeout = 30 * time.Second

// sdkHandler handles an SDK request for the organization of its API key. report is the body.
type sdkHandler func(x *requestState, r *http.Request, organization catalog.Organization, report []byte) error

// withSDKBody calls h for requests with a client key, as withKey does, with the body.
func (s *Server) withSDKBody(surface ratelimit.Surface, h sdkHandler) handler {
	return s.withKey(lookUpIn(s.SDK), apikey.Client, surface, withBodyTimeout(h))
}

// withBodyTimeout reads the body with sdkBodyTimeout as its deadline, and calls h with it.
func withBodyTimeout(h sdkHandler) orgHandler {
	return func(x *requestState, r *http.Request, organization catalog.Organization) error {
		connection := http.NewResponseController(x)
		// An error means that the connection is closed, which reading the body reports.
		_ = connection.SetReadDeadline(time.Now().Add(sdkBodyTimeout))
		_ = connection.SetWriteDeadline(time.Now().Add(sdkBodyTimeout + writeTimeout))
		report, err := readBytes(x, r, decode.JSON)
		if err != nil {
			return err
		}
		return h(x, r, organization, report)
	}
}

// openSession serves POST /sdk/session.
func (s *Server) openSession(x *requestState, r *http.Request, organization catalog.Organization, report []byte) error {
	told, err := readSessionBody(report)
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
	session, err := s.SDK.OpenSession(r.Context(), organization.ID, told.device, linkID)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, sessionResponse{session, link})
}

// openedLink returns the link of the organization for an opened URL, or nil.
func (s *Server) openedLink(r *http.Request, organization catalog.Organization, opened *string) (*catalog.PublicLink, error) {
	if opened == nil {
		return nil, nil
	}
	place, ok := s.shortURLs.shortURLRef(*opened)
	if !ok {
		return nil, nil
	}
	link, err := s.SDK.ResolvedLink(r.Context(), organization.ID, place)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	public := link.Public()
	return &public, nil
}

// identityResponse is the response of POST /sdk/identity and of POST /sdk/identity/clear.
type identityResponse struct {
	DeviceID string  `json:"deviceId"`
	UserID   *string `json:"userId"`
}

// identifyDevice serves POST /sdk/identity.
func (s *Server) identifyDevice(x *requestState, r *http.Request, organization catalog.Organization, report []byte) error {
	o, err := readSDKBody(report)
	if err != nil {
		return err
	}
	device, user, traits := readDeviceID(o), o.Required("userId", o.String("userId", 1, MaxUserID)), o.Object("traits", maxObjectBytes)
	if err := o.Err(); err != nil {
		return err
	}
	if err := s.SDK.Identify(r.Context(), organization.ID, device, user, traits); err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, identityResponse{device, &user})
}

// clearIdentity serves POST /sdk/identity/clear. An unknown device has no user, which is no error.
func (s *Server) clearIdentity(x *requestState, r *http.Request, organization catalog.Organization, report []byte) error {
	o, err := readSDKBody(report)
	if err != nil {
		return err
	}
	device := readDeviceID(o)
	if err := o.Err(); err != nil {
		return err
	}
	if err := s.SDK.ClearIdentity(r.Context(), organization.ID, device); err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, identityResponse{DeviceID: device})
}

// eventsResponse is the response of POST /sdk/events. The counts add up to the size of the batch.
type eventsResponse struct {
	Accepted   int             `json:"accepted"`
	Duplicates int             `json:"duplicates"`
	Rejected   []rejectedEvent `json:"rejected"`
}

// recordEvents serves POST /sdk/events. The events are committed before it responds.
func (s *Server) recordEvents(x *requestState, r *http.Request, organization catalog.Organization, report []byte) error {
	batch, rejected, repeated, err := readBatch(report)
	if err != nil {
		s.metrics.recorded(eventsResponse{Rejected: rejected})
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
	stored, err := s.SDK.InsertEvents(r.Context(), organization.ID, batch)
	if err != nil {
		return err
	}
	if rejected == nil {
		rejected = []rejectedEvent{}
	}
	answer := eventsResponse{Accepted: stored, Duplicates: len(batch.Events) - stored + repeated, Rejected: rejected}
	s.metrics.recorded(answer)
	return writeJSON(x, http.StatusOK, answer)
}
