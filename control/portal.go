package main

import (
	"errors"
	"net/http"
	"time"

	"deeplink/control/internal/session"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
)

// withSession lets requests with a session token through to h whose user has at least the role, in the order of checks of decisions.md
// 5. The rate limit is another one than that of a key: it is the address's, so it comes before the credential. Whoever tries out
// tokens is slowed down, too, and a token costs more to judge than a request to count.
func (s *server) withSession(least session.Role, h authorized) handler {
	return func(x *exchange, r *http.Request) error {
		if s.sessions == nil {
			return errNoPortal
		}
		address := s.client(r)
		if wait := s.limiter.Take(r.Context(), ratelimit.Portal, clientip.Key(address)); wait > 0 {
			s.metrics.limited(ratelimit.Portal)
			return errRateLimited{wait}
		}
		user, organization, err := s.user(r)
		if err != nil {
			return err
		}
		x.organizationID, x.subject = organization.ID, user.Subject
		if organization.Suspended {
			return errCredential
		}
		if !user.Role.AtLeast(least) {
			return errRole
		}
		x.actor = store.Actor{Type: store.ActorUser, ID: user.Subject, Address: address, RequestID: x.requestID}
		return h(x, r, organization)
	}
}

// user returns what the request's session token says, and the organization it is for.
func (s *server) user(r *http.Request) (session.Session, catalog.Organization, error) {
	token, ok := bearer(r.Header)
	if !ok {
		return session.Session{}, catalog.Organization{}, errCredential
	}
	user, err := s.sessions.Verify(r.Context(), token, time.Now())
	if err != nil {
		return session.Session{}, catalog.Organization{}, err
	}
	if user.Organization == canaryOrganization {
		// The one organization that is nobody's: an identity provider may let its users choose such a name.
		return session.Session{}, catalog.Organization{}, errCredential
	}
	organization, err := s.store.ExternalOrganization(r.Context(), user.Organization)
	if errors.Is(err, store.ErrNotFound) {
		err = errCredential
	}
	return user, organization, err
}

// planned is h for organizations that have selected a plan.
func planned(h authorized) authorized {
	return func(x *exchange, r *http.Request, organization catalog.Organization) error {
		if err := requirePlan(organization); err != nil {
			return err
		}
		return h(x, r, organization)
	}
}
