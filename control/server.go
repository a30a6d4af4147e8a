package main

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/session"
	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
)

// server answers the API.
type server struct {
	store *store.Store
	// phones is the store for what phones send.
	phones  *store.Store
	relay   *relay.Relay
	limiter *ratelimit.Limiter
	proxies clientip.Proxies
	metrics *metrics
	tracing *tracing
	log     *slog.Logger
	// linkBase is where the edges are, for the document.
	linkBase  string
	shortURLs shortURLs

	// sessions is nil when no identity provider is set up, and checkout when no billing page is.
	sessions *session.Verifier
	checkout *checkout
	prover   *prover

	console consoleSettings
	// roleClaim is where session tokens have the role, for the console.
	roleClaim string
}

// surfaces are those whose requests are limited here.
var surfaces = []ratelimit.Surface{
	ratelimit.LinkReads, ratelimit.LinkWrites, ratelimit.SDKSession, ratelimit.SDKEvents, ratelimit.Portal, ratelimit.Regeneration,
}

// newServer returns a server over backends, whose relay and sessions have to be run. The error says which setting is bad.
func newServer(b *backends, c *serveCommand, log *slog.Logger) (*server, error) {
	sessions, err := c.portalSettings.sessions(log)
	if err != nil {
		return nil, err
	}
	checkout, err := c.portalSettings.checkout()
	if err != nil {
		return nil, err
	}
	limiter := ratelimit.New(ratelimit.NewRedis(b.counter, limitPrefix), surfaces...)
	s := &server{
		store:     store.New(b.requests, string(c.LinkBaseURL)),
		phones:    store.New(b.phones, string(c.LinkBaseURL)),
		relay:     relay.New(b.relay, b.hints, log),
		limiter:   limiter,
		proxies:   c.TrustedProxies.Proxies,
		metrics:   newMetrics(limiter),
		log:       log,
		linkBase:  string(c.LinkBaseURL),
		shortURLs: newShortURLs(c.LinkBaseURL, c.ExtraHosts),
		sessions:  sessions,
		checkout:  checkout,
		prover:    newProver(c.DNS),

		console:   c.consoleSettings,
		roleClaim: c.RoleClaim,
	}
	s.store = s.store.Telling(s.changed)
	return s, nil
}

// route is an operation as the document declares it, with its method and path, and what answers it.
type route struct {
	huma.Operation
	answer handler
}

// limitPrefix begins the names under which Redis counts requests. It is the same in every control.
const limitPrefix = "deeplink:limit:"

// routes are all there are, in the order of the document. A GET answers HEAD too.
func (s *server) routes() []route {
	reading := func(h authorized) handler { return s.withKey(keysOf(s.store), apikey.Server, ratelimit.LinkReads, h) }
	readingOne := func(h authorized) handler { return s.withKey(s.keyAndLink, apikey.Server, ratelimit.LinkReads, h) }
	writing := func(h authorized) handler { return s.withKey(keysOf(s.store), apikey.Server, ratelimit.LinkWrites, h) }
	member := func(h authorized) handler { return s.withSession(session.Member, h) }
	admin := func(h authorized) handler { return s.withSession(session.Admin, h) }
	owner := func(h authorized) handler { return s.withSession(session.Owner, h) }
	return []route{
		{createLinkOperation(), writing(s.createLink)},
		{listLinksOperation(), reading(s.listLinks)},
		{getLinkOperation(), readingOne(s.getLink)},
		{updateLinkOperation(), writing(s.updateLink)},
		{deleteLinkOperation(), writing(s.deleteLink)},
		{drawLinkOperation(svgPicture), readingOne(s.drawLink(svgPicture))},
		{drawLinkOperation(pngPicture), readingOne(s.drawLink(pngPicture))},
		{openSessionOperation(), s.withReport(ratelimit.SDKSession, s.openSession)},
		{identifyOperation(), s.withReport(ratelimit.SDKSession, s.identifyDevice)},
		{clearIdentityOperation(), s.withReport(ratelimit.SDKSession, s.clearIdentity)},
		{recordEventsOperation(), s.withReport(ratelimit.SDKEvents, s.recordEvents)},
		{showOrganizationOperation(), member(s.showOrganization)},
		{setPlanOperation(), owner(s.setPlan)},
		{checkOutOperation(), owner(s.checkOut)},
		{getAppConfigOperation(), member(s.getAppConfig)},
		{putAppConfigOperation(), admin(s.putAppConfig)},
		{listKeysOperation(), admin(s.listKeys)},
		{regenerateKeyOperation(), admin(s.regenerateKey)},
		{onPortal(createLinkOperation()), member(planned(s.createLink))},
		{onPortal(listLinksOperation()), member(planned(s.listLinks))},
		{onPortal(getLinkOperation()), member(planned(s.getLink))},
		{onPortal(updateLinkOperation()), member(planned(s.updateLink))},
		{onPortal(deleteLinkOperation()), member(planned(s.deleteLink))},
		{onPortal(drawLinkOperation(svgPicture)), member(planned(s.drawLink(svgPicture)))},
		{onPortal(drawLinkOperation(pngPicture)), member(planned(s.drawLink(pngPicture)))},
		{listDomainsOperation(), member(planned(s.listDomains))},
		{addDomainOperation(), admin(s.addDomain)},
		{deleteDomainOperation(), admin(planned(s.deleteDomain))},
		{verifyDomainOperation(), admin(s.verifyDomain)},
		{listAuditOperation(), admin(s.listAudit)},
		{healthOperation(), health},
	}
}

// handler returns the whole API. It fails when the document can't be made.
func (s *server) handler() (http.Handler, error) {
	router := chi.NewRouter()
	// The order matters: every answer has an id, a log line and, whatever happens, an envelope.
	router.Use(begin, s.trace, s.observe, s.survive, bound, s.plain)
	router.NotFound(s.answer(func(*exchange, *http.Request) error { return errNoRoute }))
	router.MethodNotAllowed(s.answer(refuseMethod))

	routes := s.routes()
	documentation, err := documentationRoutes(routes, s.linkBase)
	if err != nil {
		return nil, err
	}
	console, err := consoleRoutes(s.console, s.roleClaim)
	if err != nil {
		return nil, err
	}
	for _, route := range slices.Concat(routes, documentation, console) {
		answer := s.answer(route.answer)
		router.Method(route.Method, route.Path, answer)
		if route.Method == http.MethodGet {
			router.Method(http.MethodHead, route.Path, answer)
		}
	}
	return router, nil
}

// health answers GET /healthz: this process serves. Whether it should be sent requests is said by /readyz on the admin address.
func health(x *exchange, _ *http.Request) error {
	return writeJSON(x, http.StatusOK, healthy{Status: "ok"})
}

type healthy struct {
	Status string `json:"status"`
}

// refuseMethod answers a path that is there with a method that is not.
func refuseMethod(x *exchange, r *http.Request) error {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var allowed []string
	routes := chi.RouteContext(r.Context()).Routes
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		return errNoRoute // chi asks about a method it does not know before it looks at the path
	}
	x.Header().Set("Allow", strings.Join(allowed, ", "))
	return errMethod
}

// The bounds of a connection. A request, its body included, has to arrive within readTimeout, which leaves requestTimeout
// time to answer it; only for what phones send there is phoneTimeout.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 8 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = time.Minute
	// maxHeader is what a header may take, in bytes; net/http adds 4 KiB for good measure.
	maxHeader = 16 << 10
)

// newHTTPServer returns the server of the API, to be given an enveloped listener.
func newHTTPServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// OPTIONS * is a request like any other.
		DisableGeneralOptionsHandler: true,
		ConnContext:                  withConnection,
	}
}
