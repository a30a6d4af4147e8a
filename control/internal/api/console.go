package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/session"
	"deeplink/control/internal/signin"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// consolePolicy is the Content-Security-Policy of responses below /console that are no page.
const consolePolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// consoleHeaders sets the headers that protect the console and its calls from other pages, also on errors.
func consoleHeaders(next http.Handler) http.Handler {
	below := func(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		console := below(r.URL.Path, "/console")
		if console {
			header.Set("Content-Security-Policy", consolePolicy)
			header.Set("X-Frame-Options", "DENY")
			header.Set("Referrer-Policy", "no-referrer")
			header.Set("Cross-Origin-Opener-Policy", "same-origin")
		}
		if console || below(r.URL.Path, "/portal") {
			header.Set("Cross-Origin-Resource-Policy", "same-origin")
		}
		next.ServeHTTP(w, r)
	})
}

// redirect responds with 303 to the location, which a browser requests with GET.
func redirect(x *requestState, location string) error {
	x.Header().Set("Location", location)
	x.Header().Set("Content-Length", "0")
	x.WriteHeader(http.StatusSeeOther)
	return nil
}

// moved redirects a request under another host to the console's address, where the cookies are, and reports whether it did. It does so once: behind a
// proxy that changes the host, no request has the right one.
func (s *Server) moved(x *requestState, r *http.Request) bool {
	if s.Console == nil || slices.Contains(r.URL.Query()["moved"], "1") || sameHost(r.Host, s.Console.URL) {
		return false
	}
	query := "moved=1"
	if r.URL.RawQuery != "" {
		query = r.URL.RawQuery + "&moved=1"
	}
	_ = redirect(x, s.Console.URL+r.URL.EscapedPath()+"?"+query)
	return true
}

// sameHost reports whether host, as in the header Host, is that of the origin.
func sameHost(host, origin string) bool {
	scheme, authority, _ := strings.Cut(origin, "://")
	standard := map[string]string{"http": ":80", "https": ":443"}[scheme]
	return strings.TrimSuffix(strings.ToLower(host), standard) == strings.TrimSuffix(authority, standard)
}

// problemPage responds with a redirect to the page that explains the problem: no browser ends on JSON.
func (s *Server) problemPage(x *requestState, p signin.Problem) error {
	if s.Console != nil {
		s.Console.Metrics.Failed(p)
	}
	return redirect(x, "/console?problem="+string(p)+"&ref="+url.QueryEscape(x.requestID))
}

// setCookie sets a cookie of the console, which no script can read.
func (s *Server) setCookie(x *requestState, name, value string, maxAge int) {
	http.SetCookie(x, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: s.Console.Secure(), SameSite: http.SameSiteLaxMode,
	})
}

// grant sets the cookie of a new session until the session's latest end.
func (s *Server) grant(x *requestState, g signin.Granted) {
	s.setCookie(x, s.Console.SessionCookie(), g.Cookie, max(1, int(time.Until(g.EndsAt)/time.Second)))
}

// browserAge is how long the browser keeps the cookie that binds sign-ins to it, in seconds.
const browserAge = 600

// startSignIn serves GET /console/sign-in.
func (s *Server) startSignIn(x *requestState, r *http.Request) error {
	if err := s.limitPortal(r); err != nil {
		return err
	}
	if s.Console == nil {
		return s.problemPage(x, signin.NotConfigured)
	}
	if s.moved(x, r) {
		return nil
	}
	query := r.URL.Query()
	one := func(name string) string {
		if values := query[name]; len(values) == 1 {
			return values[0]
		}
		return ""
	}
	started, problem, err := s.Console.Start(r.Context(), s.browserCookie(r), one("next"), one("prompt"))
	if err != nil {
		return err
	}
	if problem != signin.NoProblem {
		return s.problemPage(x, problem)
	}
	s.setCookie(x, s.Console.BrowserCookie(), started.Browser, browserAge)
	return redirect(x, started.URL)
}

// browserCookie returns the value of the cookie that binds sign-ins to the browser, empty when there is not exactly one.
func (s *Server) browserCookie(r *http.Request) string {
	if values := cookies(r, s.Console.BrowserCookie()); len(values) == 1 {
		return values[0]
	}
	return ""
}

// visitor returns the browser that signs in.
func (s *Server) visitor(x *requestState, r *http.Request) signin.Visitor {
	v := signin.Visitor{Address: s.client(r), UserAgent: r.UserAgent(), RequestID: x.requestID}
	if values := cookies(r, s.Console.SessionCookie()); len(values) == 1 {
		v.Cookie = values[0]
	}
	return v
}

// endSignIn serves GET /console/callback.
func (s *Server) endSignIn(x *requestState, r *http.Request) error {
	if err := s.limitPortal(r); err != nil {
		return err
	}
	if s.Console == nil {
		return s.problemPage(x, signin.NotConfigured)
	}
	signed, problem, err := s.Console.Callback(r.Context(), r.URL.RawQuery, s.browserCookie(r), s.visitor(x, r))
	if err != nil {
		return err
	}
	if problem != signin.NoProblem {
		return s.problemPage(x, problem)
	}
	s.grant(x, signed.Granted)
	return redirect(x, signed.Next)
}

// locationResponse leads the page elsewhere.
type locationResponse struct {
	Location string `json:"location"`
}

// signOut serves POST /console/sign-out.
func (s *Server) signOut(x *requestState, r *http.Request) error {
	if err := s.limitPortal(r); err != nil {
		return err
	}
	if s.Console == nil {
		return errNoPortal
	}
	cookie, _, err := s.sessionCookie(r)
	if err != nil {
		return err
	}
	if err := s.proveOrigin(r); err != nil {
		return err
	}
	location, err := s.Console.SignOut(r.Context(), cookie, s.client(r), x.requestID)
	if err != nil {
		return err
	}
	s.setCookie(x, s.Console.SessionCookie(), "", -1)
	return writeJSON(x, http.StatusOK, locationResponse{location})
}

// linkResponse is what a sign-in link is for.
type linkResponse struct {
	Organization linkOrganization `json:"organization"`
	Role         string           `json:"role"`
	ExpiresAt    catalog.Time     `json:"expiresAt"`
}

type linkOrganization struct {
	Name   string `json:"name"`
	OrgKey string `json:"orgKey"`
}

// maxLinkToken bounds the token of a link as it is sent. Valid ones have 43 characters.
const maxLinkToken = 1000

// useLink serves POST /console/link.
func (s *Server) useLink(x *requestState, r *http.Request) error {
	if err := s.limitPortal(r); err != nil {
		return err
	}
	if s.Console == nil {
		return errNoPortal
	}
	if err := s.proveOrigin(r); err != nil {
		return err
	}
	body, err := readBody(x, r, decode.JSON)
	if err != nil {
		return err
	}
	o := decode.ReadKnown(body, "token", "confirm")
	token := o.Required("token", o.String("token", 0, maxLinkToken))
	confirm := o.RequiredBoolean("confirm")
	if err := o.Err(); err != nil {
		return err
	}
	if !confirm {
		link, err := s.Console.Link(r.Context(), token)
		if err != nil {
			return err
		}
		return writeJSON(x, http.StatusOK, linkResponse{linkOrganization{link.Organization.Name, link.Organization.OrgKey}, link.Role, catalog.Time{Time: link.ExpiresAt}})
	}
	granted, err := s.Console.SpendLink(r.Context(), token, s.visitor(x, r))
	if err != nil {
		return err
	}
	s.grant(x, granted)
	return writeJSON(x, http.StatusOK, locationResponse{"/console"})
}

// portalSessionResponse is the response of GET /portal/session.
type portalSessionResponse struct {
	Subject       *string              `json:"subject"`
	Name          *string              `json:"name"`
	Email         *string              `json:"email"`
	Role          *string              `json:"role"`
	Via           string               `json:"via"`
	Organization  *sessionOrganization `json:"organization"`
	Organizations []membershipResponse `json:"organizations"`
	SignedInAt    *catalog.Time        `json:"signedInAt"`
	IdleUntil     *catalog.Time        `json:"idleUntil"`
	EndsAt        *catalog.Time        `json:"endsAt"`
	Provider      *string              `json:"provider"`
}

// sessionOrganization is the chosen organization.
type sessionOrganization struct {
	ID         string  `json:"id"`
	OrgKey     string  `json:"orgKey"`
	Name       string  `json:"name"`
	ExternalID *string `json:"externalId"`
}

// membershipResponse is an organization that can be chosen.
type membershipResponse struct {
	ExternalID string  `json:"externalId"`
	Name       string  `json:"name"`
	Role       *string `json:"role"`
	Suspended  bool    `json:"suspended"`
}

// text returns nil for an empty text.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// showSession serves GET /portal/session.
func (s *Server) showSession(x *requestState, r *http.Request) error {
	c, err := s.identify(x, r, s.limitedBy(ratelimit.Portal))
	if err != nil {
		return err
	}
	if c.organization != nil {
		if err := requireActive(*c.organization); err != nil {
			return err
		}
	}
	if err := sameOrganization(r, c); err != nil {
		return err
	}
	return s.writeSession(x, r, c)
}

func (s *Server) writeSession(x *requestState, r *http.Request, c caller) error {
	response := portalSessionResponse{
		Subject: text(c.subject), Name: text(c.name), Email: text(c.email), Role: text(string(c.role)), Via: c.via,
		Organizations: []membershipResponse{},
	}
	if o := c.organization; o != nil {
		response.Organization = &sessionOrganization{o.ID, o.OrgKey, o.Name, o.ExternalID}
	}
	if l := c.live; l != nil {
		known, err := s.Console.Organizations(r.Context(), l.Memberships)
		if err != nil {
			return err
		}
		for _, k := range known {
			response.Organizations = append(response.Organizations, membershipResponse{*k.Organization.ExternalID, k.Organization.Name, text(k.Role), k.Organization.Suspended})
		}
		response.SignedInAt, response.IdleUntil, response.EndsAt = &catalog.Time{Time: l.CreatedAt}, &catalog.Time{Time: l.IdleUntil}, &catalog.Time{Time: l.EndsAt}
		response.Provider = text(l.Provider)
	}
	return writeJSON(x, http.StatusOK, response)
}

// maxExternalID bounds the id of an organization as it is sent.
const maxExternalID = 255

// chooseOrganization serves PUT /portal/session/organization.
func (s *Server) chooseOrganization(x *requestState, r *http.Request) error {
	c, err := s.identify(x, r, s.limitedBy(ratelimit.Portal))
	if err != nil {
		return err
	}
	if c.live == nil {
		return errNeedsCookie
	}
	if err := sameOrganization(r, c); err != nil {
		return err
	}
	body, err := readBody(x, r, decode.JSON)
	if err != nil {
		return err
	}
	o := decode.ReadKnown(body, "externalId")
	externalID := o.Required("externalId", o.String("externalId", 1, maxExternalID))
	if err := o.Err(); err != nil {
		return err
	}
	granted, err := s.Console.Switch(r.Context(), c.actor, *c.live, externalID)
	if err != nil {
		return err
	}
	live, err := s.Console.Authenticate(r.Context(), granted.Cookie, true)
	if err != nil {
		return err
	}
	s.grant(x, granted)
	c.live, c.organization, c.role = &live, live.Organization, session.Role(live.Role)
	return s.writeSession(x, r, c)
}

// sessionEntry is a session in a list.
type sessionEntry struct {
	ID string `json:"id"`
	// Current: the request was made with it.
	Current    bool         `json:"current"`
	Subject    *string      `json:"subject"`
	Name       *string      `json:"name"`
	Email      *string      `json:"email"`
	Role       *string      `json:"role"`
	Via        store.Via    `json:"via"`
	CreatedAt  catalog.Time `json:"createdAt"`
	LastSeenAt catalog.Time `json:"lastSeenAt"`
	EndsAt     catalog.Time `json:"endsAt"`
	IP         *string      `json:"ip"`
	UserAgent  string       `json:"userAgent"`
}

// NewSessionEntry returns a session as it is in lists of the portal and of the operator's commands.
func NewSessionEntry(c store.ConsoleSession, currentID string) any {
	e := sessionEntry{
		ID: c.ID, Current: c.ID == currentID, Subject: text(c.Subject), Name: text(c.Name), Email: text(c.Email), Role: text(c.Role), Via: c.Via,
		CreatedAt: catalog.Time{Time: c.CreatedAt}, LastSeenAt: catalog.Time{Time: c.LastSeenAt}, EndsAt: catalog.Time{Time: c.EndsAt}, UserAgent: c.UserAgent,
	}
	if c.IP != nil {
		ip := c.IP.String()
		e.IP = &ip
	}
	return e
}

type sessionsResponse struct {
	Data []any `json:"data"`
}

// own selects the caller's own sessions. ok is false when there are none.
func (c caller) own() (p store.ConsolePerson, ok bool) {
	switch {
	case c.via == string(store.ViaLink):
		return store.ConsolePerson{SessionID: c.live.ID}, true
	case c.subject != "":
		return store.ConsolePerson{Issuer: c.issuer, Subject: c.subject}, true
	}
	return store.ConsolePerson{}, false
}

// liveSince returns the time of the last call before which sessions have ended.
func (s *Server) liveSince() time.Time {
	if s.Console == nil {
		return time.Now().Add(-maxIdle)
	}
	return s.Console.LiveSince()
}

// maxIdle is the highest value of CONSOLE_SESSION_IDLE.
const maxIdle = 24 * time.Hour

// listSessions serves GET /portal/sessions.
func (s *Server) listSessions(x *requestState, r *http.Request, c caller) error {
	query := decode.ReadQuery(r.URL.RawQuery)
	all := query.Boolean("all")
	if err := query.Err(); err != nil {
		return err
	}
	everyone := all != nil && *all
	least := session.Member
	if everyone {
		least = session.Owner
	}
	if !c.role.AtLeast(least) {
		return errRole
	}
	if err := sameOrganization(r, c); err != nil {
		return err
	}
	response := sessionsResponse{Data: []any{}}
	p, ok := c.own()
	if everyone {
		p, ok = store.ConsolePerson{}, true
	}
	if ok {
		sessions, err := s.Store.ConsoleSessions(r.Context(), c.organization.ID, p, time.Now(), s.liveSince())
		if err != nil {
			return err
		}
		current := ""
		if c.live != nil {
			current = c.live.ID
		}
		for _, one := range sessions {
			response.Data = append(response.Data, NewSessionEntry(one, current))
		}
	}
	return writeJSON(x, http.StatusOK, response)
}

type revokedResponse struct {
	ID      string `json:"id"`
	Revoked bool   `json:"revoked"`
}

// revokeSession serves DELETE /portal/sessions/{id}.
func (s *Server) revokeSession(x *requestState, r *http.Request, c caller) error {
	if !c.role.AtLeast(session.Member) {
		return errRole
	}
	if err := sameOrganization(r, c); err != nil {
		return err
	}
	id, err := pathID(r)
	if err != nil {
		return err
	}
	p, ok := c.own()
	if c.role.AtLeast(session.Owner) {
		p, ok = store.ConsolePerson{}, true
	}
	if !ok || p.SessionID != "" && p.SessionID != id {
		return errSessionNotFound
	}
	p.SessionID = id
	revoked, err := s.Store.RevokeConsoleSessions(r.Context(), c.actor, c.organization.ID, p, s.liveSince())
	if err != nil {
		return err
	}
	if revoked == 0 {
		return errSessionNotFound
	}
	return writeJSON(x, http.StatusOK, revokedResponse{id, true})
}
