package api

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"deeplink/control/internal/clicks"
	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/keyguard"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/session"
	"deeplink/control/internal/signin"
	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
	"deeplink/shared/settings"
)

// Server handles the requests of the API.
type Server struct {
	Options
	limiter   *ratelimit.Limiter
	keys      *keyguard.Guard
	metrics   *metrics
	shortURLs shortURLs
	origins   sdkOrigins
	verifier  *dnsverify.Verifier
}

// Options are what a server needs.
type Options struct {
	Store *store.Store
	// Clicks reads the figures of clicks, with connections of its own.
	Clicks *clicks.Reader
	// SDK is the store for the SDK routes, with connections of its own.
	SDK *store.Store
	// Relay must run while the server handles requests.
	Relay *relay.Relay
	// Counter is the Redis that counts requests for the rate limits.
	Counter redis.UniversalClient
	Proxies clientip.Proxies
	// LinkBase begins short URLs on the shared host, which also has the names ExtraHosts.
	LinkBase   settings.LinkBase
	ExtraHosts []settings.HostName
	// SDKOrigins are the origins whose pages may call the SDK routes.
	SDKOrigins []settings.Origin
	// Sessions is nil when no identity provider is configured, and Checkout when no billing page is.
	Sessions *session.Verifier
	Checkout *Checkout
	// Console signs people in to the console. It is nil when browsers do not reach control.
	Console *signin.Service
	// Resolver looks up the TXT records of domains.
	Resolver dnsverify.Resolver
	// Pages are static files that the server serves in addition to the API.
	Pages []Page
	// Tracer is nil when tracing is off.
	Tracer trace.Tracer
	Log    *slog.Logger
}

// Page is a static file at Path. Browsers revalidate it with its ETag before each use.
type Page struct {
	Path, MediaType string
	Content         []byte
	// Policy is its Content-Security-Policy.
	Policy string
	// Volatile pages are not kept by browsers.
	Volatile bool
}

// surfaces are the rate limits that control enforces.
var surfaces = []ratelimit.Surface{
	ratelimit.LinkReads, ratelimit.LinkWrites, ratelimit.LinkBulk, ratelimit.SDKSession, ratelimit.SDKEvents, ratelimit.Portal, ratelimit.Regeneration,
}

// New returns a server. Close ends it.
func New(options Options) *Server {
	limiter := ratelimit.New(ratelimit.NewRedis(options.Counter, limitPrefix), surfaces...)
	s := &Server{
		Options:   options,
		limiter:   limiter,
		metrics:   newMetrics(limiter),
		shortURLs: newShortURLs(options.LinkBase, options.ExtraHosts),
		origins:   newSDKOrigins(options.SDKOrigins),
		verifier:  dnsverify.NewVerifier(options.Resolver),
	}
	s.Store = s.Store.WithAuditHook(s.Audited)
	if s.Console != nil {
		s.Console.Store = s.Console.Store.WithAuditHook(s.Audited)
	}
	s.keys = keyguard.New(s.Store.ValidKeys)
	return s
}

// Close waits until no check of a rate limit uses Counter, which must be closed before, so that pending checks end.
func (s *Server) Close() { s.limiter.Wait() }

// route is a path with one of its methods, and the handler for them. internal/openapi/openapi.yaml describes each one.
type route struct {
	Method, Path string
	answer       handler
	// noHead: a GET route that does not answer HEAD, because it changes something.
	noHead bool
}

// limitPrefix is the prefix of the rate-limit keys in Redis. Every control uses the same.
const limitPrefix = "deeplink:limit:"

// routes returns every route of the API, in the order of openapi.yaml. A GET route also answers HEAD.
func (s *Server) routes() []route {
	reading := func(h orgHandler) handler { return s.withKey(lookUpIn(s.Store), apikey.Server, ratelimit.LinkReads, h) }
	readingOne := func(h orgHandler) handler { return s.withKey(s.keyAndLink, apikey.Server, ratelimit.LinkReads, h) }
	writing := func(h orgHandler) handler {
		return s.withKey(lookUpIn(s.Store), apikey.Server, ratelimit.LinkWrites, h)
	}
	writingMany := readToEnd(s.withKeyLimited(lookUpIn(s.Store), apikey.Server, s.bulkLimitedBy(ratelimit.LinkWrites), s.writeLinks))
	memberWritingMany := readToEnd(s.withSessionLimited(session.Member, s.bulkLimitedBy(ratelimit.Portal), withPlan(s.writeLinks)))
	member := func(h orgHandler) handler { return s.withSession(session.Member, h) }
	admin := func(h orgHandler) handler { return s.withSession(session.Admin, h) }
	owner := func(h orgHandler) handler { return s.withSession(session.Owner, h) }
	return []route{
		{http.MethodPost, "/links", writing(s.createLink), false},
		{http.MethodGet, "/links", reading(s.listLinks), false},
		{http.MethodPost, "/links/bulk", writingMany, false},
		{http.MethodGet, "/links/{id}", readingOne(s.getLink), false},
		{http.MethodPatch, "/links/{id}", exceptBulk(writing(s.updateLink)), false},
		{http.MethodDelete, "/links/{id}", exceptBulk(writing(s.deleteLink)), false},
		{http.MethodGet, "/links/external/{externalId}", readingOne(s.getLink), false},
		{http.MethodPut, "/links/external/{externalId}", writing(s.putExternalLink), false},
		{http.MethodDelete, "/links/external/{externalId}", writing(s.deleteExternalLink), false},
		{http.MethodGet, "/links/{id}/qr.svg", readingOne(s.drawLink(svgFormat)), false},
		{http.MethodGet, "/links/{id}/qr.png", readingOne(s.drawLink(pngFormat)), false},

		{http.MethodGet, "/analytics/clicks", reading(s.showClicks), false},
		{http.MethodGet, "/analytics/clicks/raw", reading(s.showRawClicks), false},

		{http.MethodPost, "/sdk/session", s.withSDKBody(ratelimit.SDKSession, s.openSession), false},
		{http.MethodPost, "/sdk/identity", s.withSDKBody(ratelimit.SDKSession, s.identifyDevice), false},
		{http.MethodPost, "/sdk/identity/clear", s.withSDKBody(ratelimit.SDKSession, s.clearIdentity), false},
		{http.MethodPost, "/sdk/events", s.withSDKBody(ratelimit.SDKEvents, s.recordEvents), false},

		{http.MethodGet, "/portal/organization", member(s.showOrganization), false},
		{http.MethodPut, "/portal/plan", owner(s.setPlan), false},
		{http.MethodPost, billingPath, owner(s.checkOut), false},
		{http.MethodGet, "/portal/app-config", member(s.getAppConfig), false},
		{http.MethodPut, "/portal/app-config", admin(s.putAppConfig), false},
		{http.MethodGet, "/portal/api-keys", admin(s.listKeys), false},
		{http.MethodPost, "/portal/api-keys/{tier}/regenerate", admin(withRequirement(requireAPIAccess, s.regenerateKey)), false},
		{http.MethodPost, "/portal/links", member(withPlan(s.createLink)), false},
		{http.MethodGet, "/portal/links", member(withPlan(s.listLinks)), false},
		{http.MethodPost, "/portal/links/bulk", memberWritingMany, false},
		{http.MethodGet, "/portal/links/{id}", member(withPlan(s.getLink)), false},
		{http.MethodPatch, "/portal/links/{id}", exceptBulk(member(withPlan(s.updateLink))), false},
		{http.MethodDelete, "/portal/links/{id}", exceptBulk(member(withPlan(s.deleteLink))), false},
		{http.MethodGet, "/portal/links/external/{externalId}", member(withPlan(s.getLink)), false},
		{http.MethodPut, "/portal/links/external/{externalId}", member(withPlan(s.putExternalLink)), false},
		{http.MethodDelete, "/portal/links/external/{externalId}", member(withPlan(s.deleteExternalLink)), false},
		{http.MethodGet, "/portal/links/{id}/qr.svg", member(withPlan(s.drawLink(svgFormat))), false},
		{http.MethodGet, "/portal/links/{id}/qr.png", member(withPlan(s.drawLink(pngFormat))), false},
		{http.MethodGet, "/portal/analytics/clicks", member(withPlan(s.showClicks)), false},
		{http.MethodGet, "/portal/analytics/clicks/raw", member(withPlan(s.showRawClicks)), false},
		{http.MethodGet, "/portal/domains", member(withPlan(s.listDomains)), false},
		{http.MethodPost, "/portal/domains", admin(withRequirement(requireCustomDomains, s.addDomain)), false},
		{http.MethodDelete, "/portal/domains/{id}", admin(withPlan(s.deleteDomain)), false},
		{http.MethodPost, "/portal/domains/{id}/verify", admin(withRequirement(requireCustomDomains, s.verifyDomain)), false},
		{http.MethodGet, "/portal/audit-log", admin(s.listAudit), false},

		{http.MethodGet, "/portal/session", s.showSession, false},
		{http.MethodPut, "/portal/session/organization", s.chooseOrganization, false},
		{http.MethodGet, "/portal/sessions", s.withCaller(s.listSessions), false},
		{http.MethodDelete, "/portal/sessions/{id}", s.withCaller(s.revokeSession), false},
		{Method: http.MethodGet, Path: "/console/sign-in", answer: s.startSignIn, noHead: true},
		{Method: http.MethodGet, Path: "/console/callback", answer: s.endSignIn, noHead: true},
		{http.MethodPost, "/console/link", s.useLink, false},
		{http.MethodPost, "/console/sign-out", s.signOut, false},

		{http.MethodGet, "/healthz", health, false},
	}
}

// handler returns the handler of all routes. The error is about embedded files.
func (s *Server) handler() (http.Handler, error) {
	router := chi.NewRouter()
	// The order matters: every response gets a request id and a log line, and every error an envelope, which pages of listed origins can read.
	router.Use(requestID, consoleHeaders, s.origins.share, s.trace, s.accessLog, s.recoverer, timeout, s.strictPath)
	router.NotFound(s.handle(func(*requestState, *http.Request) error { return errNoRoute }))
	router.MethodNotAllowed(s.handle(refuseMethod))

	routes := s.routes()
	documentation, err := documentationRoutes(string(s.LinkBase))
	if err != nil {
		return nil, err
	}
	for _, route := range slices.Concat(routes, documentation, s.pageRoutes()) {
		answer := s.handle(route.answer)
		router.Method(route.Method, route.Path, answer)
		if route.Method == http.MethodGet && !route.noHead {
			router.Method(http.MethodHead, route.Path, answer)
		}
		if len(s.origins) > 0 && strings.HasPrefix(route.Path, sdkPrefix) {
			router.Method(http.MethodOptions, route.Path, s.handle(s.origins.preflight))
		}
	}
	return router, nil
}

// health serves GET /healthz: the process runs. /readyz on the admin address reports whether it should get requests.
func health(x *requestState, _ *http.Request) error {
	return writeJSON(x, http.StatusOK, healthResponse{Status: "ok"})
}

type healthResponse struct {
	Status string `json:"status"`
}

// refuseMethod responds with 405 to a method that the path does not have.
func refuseMethod(x *requestState, r *http.Request) error {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	if strings.HasSuffix(path, bulkSuffix) {
		x.Header().Set("Allow", bulkMethods)
		return errMethod
	}
	var allowed []string
	routes := chi.RouteContext(r.Context()).Routes
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		return errNoRoute // chi calls this for a method that it does not know before it looks at the path
	}
	x.Header().Set("Allow", strings.Join(allowed, ", "))
	return errMethod
}

// The bounds of a connection. A request with its body must arrive within readTimeout; an SDK body has sdkBodyTimeout. A write then takes
// store.WriteTimeout; both together are less than writeTimeout.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 8 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = time.Minute
	// maxHeader bounds a header in bytes. net/http adds 4 KiB.
	maxHeader = 16 << 10
)

// HTTP returns the server of the API. It must serve a listener from Listen.
func (s *Server) HTTP() (*http.Server, error) {
	handler, err := s.handler()
	if err != nil {
		return nil, err
	}
	return newHTTPServer(handler, s.Log), nil
}

// newHTTPServer returns a server with the bounds above.
func newHTTPServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// Without this, net/http responds to OPTIONS * itself, without the headers of the API.
		DisableGeneralOptionsHandler: true,
		ConnContext:                  withConnection,
	}
}
