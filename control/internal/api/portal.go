package api

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

// withSession calls h for requests with a session token whose user has at least the role. The portal limit is per IP address, so it runs before
// authentication: it also slows down clients that try tokens, and verifying a token costs more than counting a request.
func (s *Server) withSession(least session.Role, h orgHandler) handler {
	return func(x *requestState, r *http.Request) error {
		if s.Sessions == nil {
			return errNoPortal
		}
		address := s.client(r)
		if wait := s.limiter.Take(ratelimit.Portal, clientip.Key(address)); wait > 0 {
			s.metrics.limited(ratelimit.Portal)
			return errRateLimited{wait}
		}
		user, organization, err := s.user(r)
		if err != nil {
			return err
		}
		x.organizationID, x.subject = organization.ID, user.Subject
		if err := requireActive(organization); err != nil {
			return err
		}
		if !user.Role.AtLeast(least) {
			return errRole
		}
		x.actor = store.UserActor(user.Subject, address, x.requestID)
		x.require = requireActive
		return h(x, r, organization)
	}
}

// user verifies the session token, and returns its user and organization.
func (s *Server) user(r *http.Request) (session.Session, catalog.Organization, error) {
	token, ok := bearer(r.Header)
	if !ok {
		return session.Session{}, catalog.Organization{}, errCredential
	}
	user, err := s.Sessions.Verify(r.Context(), token, time.Now())
	if err != nil {
		return session.Session{}, catalog.Organization{}, err
	}
	if user.Organization == store.CanaryOrganization {
		// Users may be able to choose the name of their organization at the identity provider.
		return session.Session{}, catalog.Organization{}, errCredential
	}
	organization, err := s.Store.ExternalOrganization(r.Context(), user.Organization)
	if errors.Is(err, store.ErrNotFound) {
		err = errCredential
	}
	return user, organization, err
}

// withPlan calls h for organizations with a plan.
func withPlan(h orgHandler) orgHandler { return withRequirement(requirePlan, h) }

// withRequirement calls h for organizations that meet the requirement, on arrival and again in the transaction of a write.
func withRequirement(require store.Requirement, h orgHandler) orgHandler {
	return func(x *requestState, r *http.Request, organization catalog.Organization) error {
		if err := require(organization); err != nil {
			return err
		}
		x.require = all(x.require, require)
		return h(x, r, organization)
	}
}
