package api

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"deeplink/control/internal/clicks"
	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/session"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/bus"
	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
	"deeplink/shared/settings"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const testLinkBase = testenv.LinkBase

// testEnv is one test's database and Redis, and the servers that use them.
type testEnv struct{ *testenv.Env }

func newTestEnv(t testing.TB) *testEnv { return &testEnv{testenv.New(t)} }

type (
	reply      = testenv.Reply
	logBuffer  = testenv.LogBuffer
	claims     = testenv.Claims
	nameServer = testenv.NameServer
)

// client is a testenv.Client with helpers for these tests.
type client struct{ *testenv.Client }

// process is a running server, in the test's process or in a separate control.
type process struct{ *testenv.Control }

func (p *process) client(key string) *client  { return &client{p.Client(key)} }
func (p *process) visit(token string) *client { return &client{p.Visit(token)} }
func (p *process) in(t *testing.T) *process   { return &process{p.In(t)} }

func await(t testing.TB, what string, check func() error) {
	t.Helper()
	testenv.Await(t, what, check)
}

// option changes the options of a server under test.
type option func(testing.TB, *testOptions)

type testOptions struct {
	Options
	connections, sdkConnections int
}

func withDNS(s *nameServer) option {
	return func(_ testing.TB, o *testOptions) { o.Resolver = dnsverify.NewResolver(s.Address) }
}

func withExtraHosts(hosts ...settings.HostName) option {
	return func(_ testing.TB, o *testOptions) { o.ExtraHosts = hosts }
}

func withSDKOrigins(origins ...settings.Origin) option {
	return func(_ testing.TB, o *testOptions) { o.SDKOrigins = origins }
}

func withConnections(n int) option {
	return func(_ testing.TB, o *testOptions) { o.connections = n }
}

func withCheckout(page, key string) option {
	return func(t testing.TB, o *testOptions) {
		var err error
		if o.Checkout, err = NewCheckout(page, key); err != nil {
			t.Fatal(err)
		}
	}
}

func withPages(pages ...Page) option {
	return func(_ testing.TB, o *testOptions) { o.Pages = pages }
}

// newServer returns a server with pools like those of control serve. Its relay runs until stop or the end of the test.
func (w *testEnv) newServer(log *logBuffer, options ...option) (s *Server, stop func()) {
	w.T.Helper()
	o := testOptions{connections: 16, sdkConnections: 4, Options: Options{
		LinkBase: testLinkBase, Resolver: dnsverify.NewResolver(""), Log: slog.New(slog.NewJSONHandler(log, nil)),
	}}
	for _, change := range options {
		change(w.T, &o)
	}
	extra := make([]string, len(o.ExtraHosts))
	for i, host := range o.ExtraHosts {
		extra[i] = string(host)
	}
	var closers []func()
	open := func(connections int) *store.Store {
		pool, err := store.OpenPool(w.DB.ControlURL, connections)
		if err != nil {
			w.T.Fatal(err)
		}
		closers = append(closers, pool.Close)
		return store.New(pool, testLinkBase, extra...)
	}
	o.Store, o.SDK = open(o.connections), open(o.sdkConnections)
	figures, err := store.OpenPool(w.DB.ControlURL, clicks.RequestConnections)
	if err != nil {
		w.T.Fatal(err)
	}
	closers = append(closers, figures.Close)
	o.Clicks = clicks.NewReader(figures, 720*time.Hour, func(orgKey, host, code string) string {
		return catalog.ShortURL(testLinkBase, orgKey, host, code)
	})
	relayPool, err := store.OpenPool(w.DB.ControlURL, 2)
	if err != nil {
		w.T.Fatal(err)
	}
	hints, err := bus.Open(w.Redis.URL())
	if err != nil {
		w.T.Fatal(err)
	}
	counter, err := ratelimit.Open(w.Redis.URL(), ratelimit.Connections)
	if err != nil {
		w.T.Fatal(err)
	}
	if o.Console != nil {
		o.Console.Store = o.Store
	}
	o.Relay, o.Counter = relay.New(relayPool, hints, o.Log), counter
	s = New(o.Options)
	ctx, cancel := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() {
		if err := o.Relay.Run(ctx); err != nil {
			w.T.Error(err)
		}
	})
	if o.Sessions != nil {
		background.Go(func() {
			if err := o.Sessions.Run(ctx); err != nil {
				w.T.Error(err)
			}
		})
	}
	if o.Console != nil {
		background.Go(func() {
			if err := o.Console.Run(ctx); err != nil {
				w.T.Error(err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		background.Wait()
		if o.Console != nil {
			o.Console.Close()
		}
		counter.Close()
		s.Close()
		hints.Close()
		relayPool.Close()
		for _, end := range closers {
			end()
		}
	})
	w.T.Cleanup(stop)
	return s, stop
}

// server returns a server whose handlers a test calls directly.
func (w *testEnv) server() *Server {
	s, _ := w.newServer(new(logBuffer))
	return s
}

// serve runs a server in this process until the end of the test.
func (w *testEnv) serve(options ...option) *process {
	w.T.Helper()
	p := &testenv.Control{T: w.T, Log: new(logBuffer)}
	s, stop := w.newServer(p.Log, options...)
	server, err := s.HTTP()
	if err != nil {
		w.T.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.T.Fatal(err)
	}
	p.Base = "http://" + listener.Addr().String()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collectors()...)
	registry.MustRegister(s.Relay.Collectors()...)
	if s.Sessions != nil {
		registry.MustRegister(s.Sessions.Collectors()...)
	}
	if s.Console != nil {
		registry.MustRegister(s.Console.Metrics.Collectors()...)
	}
	p.Scrape = func() string {
		recorder := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
		return recorder.Body.String()
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(Listen(listener)) }()
	p.Stop = sync.OnceValue(func() int {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			w.T.Error(err)
		}
		<-ended
		stop()
		return 0
	})
	w.T.Cleanup(func() {
		p.Stop()
		p.Explain()
	})
	return &process{p}
}

// launch starts control as a separate process, and waits until it is ready. It ends with the test.
func (w *testEnv) launch(path string, settings ...string) *process {
	w.T.Helper()
	control, _ := w.Launch(path, settings...)
	return &process{control}
}

// provider is an identity provider and the environment of the servers that trust it.
type provider struct {
	*testenv.Provider
	w *testEnv
}

func (w *testEnv) provider() *provider { return &provider{testenv.NewProvider(w.T), w} }

// serve runs a server that trusts the provider, and this machine as its proxy.
func (p *provider) serve(options ...option) *process {
	p.w.T.Helper()
	trust := func(t testing.TB, o *testOptions) {
		var err error
		if o.Sessions, err = session.New(session.Options{KeysURL: p.URL, Issuer: testenv.Issuer, OrganizationClaim: "org_id", RoleClaim: "org_role", Log: o.Log}); err != nil {
			t.Fatal(err)
		}
		if o.Proxies, err = loopbackProxies(); err != nil {
			t.Fatal(err)
		}
	}
	return p.w.serve(append([]option{trust}, options...)...)
}

// launch is serve with a separate control, for tests that send many requests at once.
func (p *provider) launch(path string) *process {
	p.w.T.Helper()
	return p.w.launch(path, "PORTAL_JWKS_URL="+p.URL, "PORTAL_ISSUER="+testenv.Issuer, "TRUSTED_PROXIES=127.0.0.1/32")
}

// as returns a client of a server with a role in an organization.
func (p *provider) as(control *process, o store.CreatedOrganization, role string) *client {
	p.w.T.Helper()
	return control.visit(p.Token(*o.ExternalID, role))
}

// loopbackProxies are this machine.
func loopbackProxies() (clientip.Proxies, error) {
	var proxies settings.Proxies
	err := proxies.UnmarshalText([]byte("127.0.0.1/32"))
	return proxies.Proxies, err
}
