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

// profile is an organization as the portal shows it (decisions.md 6).
type profile struct {
	ID         string        `json:"id"`
	OrgKey     string        `json:"orgKey"`
	Name       string        `json:"name"`
	ExternalID *string       `json:"externalId"`
	Plan       *catalog.Plan `json:"plan"`
	Suspended  bool          `json:"suspended"`
	Features   features      `json:"features"`
	Links      usage         `json:"links"`
}

// features are those that a plan may have.
type features struct {
	APIAccess     bool `json:"api_access"`
	CustomDomains bool `json:"custom_domains"`
}

// usage is how much of a quota is used. The quota is nil when there is none.
type usage struct {
	Used  int64  `json:"used"`
	Quota *int64 `json:"quota"`
}

// showOrganization answers GET /portal/organization.
func (s *server) showOrganization(x *exchange, r *http.Request, organization catalog.Organization) error {
	used, err := s.store.LinkUsage(r.Context(), organization.ID)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, profileOf(organization, used))
}

func profileOf(o catalog.Organization, used int64) profile {
	var terms catalog.Terms // without a plan there is nothing
	if o.Plan != nil {
		terms = o.Plan.Terms()
	}
	p := profile{
		ID: o.ID, OrgKey: o.OrgKey, Name: o.Name, ExternalID: o.ExternalID, Plan: o.Plan, Suspended: o.Suspended,
		Features: features{terms.APIAccess, terms.CustomDomains}, Links: usage{Used: used},
	}
	if terms.Links != catalog.Unlimited {
		p.Links.Quota = &terms.Links
	}
	return p
}
