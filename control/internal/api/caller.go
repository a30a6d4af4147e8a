package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"deeplink/control/internal/session"
	"deeplink/control/internal/signin"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
)

const (
	// consoleHeader is on every call of the console's page that changes something. A page of another origin cannot send it without a preflight,
	// which control refuses.
	consoleHeader = "Deeplink-Console"
	// organizationHeader names the organization that the page shows.
	organizationHeader = "Deeplink-Organization"
	// viaToken is how the caller with a session token of the identity provider signed in.
	viaToken = "token"
)

// caller is who makes a request to the portal.
type caller struct {
	// via is provider, link or token.
	via                  string
	issuer               string
	subject, name, email string
	role                 session.Role
	organization         *catalog.Organization // nil only for a session in which none was chosen
	live                 *signin.Live          // nil for a session token
	actor                store.Actor
}

// limitPortal counts the request. The portal limit is per IP address, so it comes before authentication: it also slows down clients that try tokens,
// and verifying a token costs more than counting a request.
func (s *Server) limitPortal(r *http.Request) error {
	return s.limitedBy(ratelimit.Portal)(clientip.Key(s.client(r)))
}

// withSession calls h for requests with a session token or the cookie of the console whose user has at least the role.
func (s *Server) withSession(least session.Role, h orgHandler) handler {
	return s.withSessionLimited(least, s.limitedBy(ratelimit.Portal), h)
}

// withSessionLimited is withSession with another limit per address.
func (s *Server) withSessionLimited(least session.Role, limited limit, h orgHandler) handler {
	return s.withCallerLimited(limited, func(x *requestState, r *http.Request, c caller) error {
		if !c.role.AtLeast(least) {
			return errRole
		}
		if err := sameOrganization(r, c); err != nil {
			return err
		}
		x.actor = c.actor
		x.require = requireActive
		return h(x, r, *c.organization)
	})
}

// callerHandler handles a request of the caller.
type callerHandler func(x *requestState, r *http.Request, c caller) error

// withCaller calls h for requests of callers with an organization that is not suspended, in any role.
func (s *Server) withCaller(h callerHandler) handler {
	return s.withCallerLimited(s.limitedBy(ratelimit.Portal), h)
}

func (s *Server) withCallerLimited(limited limit, h callerHandler) handler {
	return func(x *requestState, r *http.Request) error {
		c, err := s.identify(x, r, limited)
		if err != nil {
			return err
		}
		if c.organization == nil {
			return errNoOrganizationChosen
		}
		if err := requireActive(*c.organization); err != nil {
			return err
		}
		return h(x, r, c)
	}
}

// identify returns the caller. The order of the checks is part of the interface: rate limit, exactly one credential, proof of origin, session.
func (s *Server) identify(x *requestState, r *http.Request, limited limit) (caller, error) {
	if err := limited(clientip.Key(s.client(r))); err != nil {
		return caller{}, err
	}
	cookie, present, err := s.sessionCookie(r)
	if err != nil {
		return caller{}, err
	}
	if present {
		return s.identifyCookie(x, r, cookie)
	}
	if s.Sessions == nil && (s.Console == nil || len(r.Header.Values("Authorization")) > 0) {
		return caller{}, errNoPortal
	}
	return s.identifyToken(x, r)
}

// sessionCookie returns the value of the session cookie of a request that has no other credential.
func (s *Server) sessionCookie(r *http.Request) (value string, present bool, err error) {
	if s.Console == nil {
		return "", false, nil
	}
	values := cookies(r, s.Console.SessionCookie())
	switch {
	case len(values) == 0:
		return "", false, nil
	case len(r.Header.Values("Authorization")) > 0:
		return "", false, errTwoCredentials
	case len(values) > 1:
		return "", false, errCookieTwice
	}
	return values[0], true, nil
}

// cookies returns the values of all cookies with the name, as they were sent. net/http leaves out malformed ones.
func cookies(r *http.Request, name string) (values []string) {
	for _, line := range r.Header.Values("Cookie") {
		for pair := range strings.SplitSeq(line, ";") {
			if found, value, _ := strings.Cut(strings.TrimSpace(pair), "="); found == name {
				values = append(values, value)
			}
		}
	}
	return values
}

func (s *Server) identifyToken(x *requestState, r *http.Request) (caller, error) {
	user, organization, err := s.user(r)
	if err != nil {
		return caller{}, err
	}
	x.organizationID, x.subject = organization.ID, user.Subject
	return caller{
		via: viaToken, issuer: s.Sessions.Issuer(), subject: user.Subject, name: user.Name, email: user.Email, role: user.Role, organization: &organization,
		actor: store.UserActor(user.Subject, s.client(r), x.requestID),
	}, nil
}

func (s *Server) identifyCookie(x *requestState, r *http.Request, cookie string) (caller, error) {
	if err := s.proveOrigin(r); err != nil {
		return caller{}, err
	}
	live, err := s.Console.Authenticate(r.Context(), cookie, isRead(r))
	if err != nil {
		return caller{}, err
	}
	x.subject = live.Subject
	if live.Organization != nil {
		x.organizationID = live.Organization.ID
	}
	return caller{
		via: string(live.Via), issuer: live.Issuer, subject: live.Subject, name: live.Name, email: live.Email, role: session.Role(live.Role),
		organization: live.Organization, live: &live, actor: signin.Actor(live.ConsoleSession, s.client(r), x.requestID),
	}, nil
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// proveOrigin returns an error unless the request comes from the console's own page. Browsers send cookies with requests of every page, but no other
// page can set these headers.
func (s *Server) proveOrigin(r *http.Request) error {
	sites, origins := r.Header.Values("Sec-Fetch-Site"), r.Header.Values("Origin")
	if isRead(r) {
		for _, site := range sites {
			if site == "cross-site" || site == "same-site" {
				return errForeignOrigin
			}
		}
		return nil
	}
	marks := r.Header.Values(consoleHeader)
	ours := len(origins) == 1 && origins[0] == s.Console.URL
	switch {
	case len(marks) != 1 || marks[0] != "1":
		return errForeignOrigin
	case len(sites) == 0 && ours:
		return nil
	case len(sites) == 1 && sites[0] == "same-origin" && (len(origins) == 0 || ours):
		return nil
	}
	return errForeignOrigin
}

// sameOrganization returns an error if the page shows another organization than that of its session: a tab from before a switch must not write into
// the new one.
func sameOrganization(r *http.Request, c caller) error {
	if c.live == nil || c.organization == nil {
		return nil
	}
	for _, id := range r.Header.Values(organizationHeader) {
		if !strings.EqualFold(id, c.organization.ID) {
			return errOrganizationChanged
		}
	}
	return nil
}

// user verifies the session token, and returns its user and organization.
func (s *Server) user(r *http.Request) (session.Session, catalog.Organization, error) {
	token, ok := bearer(r.Header)
	if !ok || s.Sessions == nil {
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
