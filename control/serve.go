package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/api"
	"deeplink/control/internal/canary"
	"deeplink/control/internal/clicks"
	"deeplink/control/internal/console"
	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/jobs"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/signin"
	"deeplink/control/internal/store"
	"deeplink/migrations"
	"deeplink/shared/admin"
	"deeplink/shared/bus"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// shutdownTimeout bounds how long the requests in progress may take after the drain. It is longer than the longest write whose body has been
// read. A slower SDK request is cut off, and the app sends it again.
const shutdownTimeout = store.WriteTimeout + 2*time.Second

// Run serves until env's context ends. It then stops in this order: readiness fails, load balancers get time to drain, the listener closes,
// requests in progress end, the relay that they wait for ends, and the pools close.
func (c *serveCommand) Run(t *env) error {
	b, err := openBackends(t, c)
	if err != nil {
		return err
	}
	defer b.close()
	listener, err := net.Listen("tcp", string(c.Addr))
	if err != nil {
		return err
	}
	defer listener.Close()
	private, err := net.Listen("tcp", string(c.AdminAddr))
	if err != nil {
		return err
	}
	defer private.Close()
	tracing, err := openTracing(t.ctx, c.Collector, t.log)
	if err != nil {
		return err
	}
	defer tracing.close()

	signIns := signin.NewMetrics()
	options, err := c.options(b, tracing.tracerOf(), signIns, t.log)
	if err != nil {
		return err
	}
	server := api.New(options)
	if options.Console != nil {
		defer options.Console.Close() // renewals outlive the requests that started them
	}
	defer server.Close()
	defer b.counter.Close() // before server.Close: it ends rate-limit checks that no request waits for
	httpServer, err := server.HTTP()
	if err != nil {
		return err
	}
	jobStore := c.store(b.jobs)
	ready := &readiness{store: jobStore}
	metrics := jobs.NewMetrics()
	var watcher *canary.Canary
	if c.Canary > 0 {
		watcher = canary.New(jobStore, options.Relay, c.LinkBaseURL, c.Canary, t.log)
	}
	clickMetrics := clicks.NewMetrics()
	registry := newRegistry(b, options, server, metrics, watcher)
	registry.MustRegister(clickMetrics.Collectors()...)
	registry.MustRegister(signIns.Collectors()...)

	// background outlives the requests, which wait for the relay.
	background, endBackground := context.WithCancel(context.WithoutCancel(t.ctx))
	defer endBackground()
	group, ctx := errgroup.WithContext(t.ctx)
	group.Go(func() error { return admin.Serve(background, private, ready.check, registry) })
	group.Go(func() error { return options.Relay.Run(background) })
	group.Go(func() error {
		return jobs.NewPurger(jobStore, c.Retention, c.DeviceRetention, metrics, t.log).Run(background)
	})
	group.Go(func() error {
		return clicks.NewRollUps(b.clicks, c.ClickRetention, clickMetrics, t.log).Run(background)
	})
	group.Go(func() error {
		return clicks.NewHousekeeping(b.clicks, c.ClickRetention, clickMetrics, t.log).Run(background)
	})
	group.Go(func() error { return jobs.NewTransactionWatch(jobStore, metrics, t.log).Run(background) })
	group.Go(func() error { return jobs.FlushSearchIndexes(background, jobStore, metrics, t.log) })
	transfers := jobs.NewDomainTransfers(jobStore.WithAuditHook(server.Audited), options.Relay, options.Resolver, metrics, t.log)
	group.Go(func() error { return transfers.Run(background) })
	if options.Sessions != nil {
		group.Go(func() error { return options.Sessions.Run(background) })
	}
	if options.Console != nil {
		group.Go(func() error { return options.Console.Run(background) })
	}
	if watcher != nil {
		// The canary ends with the first signal: it needs the relay, and nothing waits for it.
		group.Go(func() error { return watcher.Run(ctx) })
	}
	group.Go(func() error {
		if err := httpServer.Serve(api.Listen(listener)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the API: %w", err)
		}
		return nil
	})
	t.log.Info("serving", "address", listener.Addr().String(), "admin", private.Addr().String())
	group.Go(func() error {
		defer endBackground()
		<-ctx.Done()
		t.log.Info("stopping")
		ready.end()
		time.Sleep(c.Drain)
		drain, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if err := httpServer.Shutdown(drain); err != nil {
			httpServer.Close()
			return fmt.Errorf("requests were cut off: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// options returns what the API needs. The error names the setting that is invalid.
func (c *serveCommand) options(b *backends, tracer trace.Tracer, metrics *signin.Metrics, log *slog.Logger) (api.Options, error) {
	sessions, err := c.portalSettings.sessions(log)
	if err != nil {
		return api.Options{}, err
	}
	checkout, err := c.portalSettings.checkout()
	if err != nil {
		return api.Options{}, err
	}
	requests := c.store(b.requests)
	service, err := c.consoleSettings.service(&c.portalSettings, requests, metrics, log)
	if err != nil {
		return api.Options{}, err
	}
	files, err := console.Files(c.consoleSettings.page())
	if err != nil {
		return api.Options{}, err
	}
	pages := make([]api.Page, len(files))
	for i, file := range files {
		pages[i] = api.Page(file)
	}
	return api.Options{
		Store: requests, Console: service, Clicks: c.clickReader(b.figures), SDK: c.store(b.sdk), Relay: relay.New(b.relay, b.hints, log), Counter: b.counter,
		Proxies: c.TrustedProxies.Proxies, LinkBase: c.LinkBaseURL, ExtraHosts: c.ExtraHosts, SDKOrigins: c.SDKOrigins,
		Sessions: sessions, Checkout: checkout, Resolver: dnsverify.NewResolver(c.DNS), Pages: pages, Tracer: tracer, Log: log,
	}, nil
}

// clickReader returns the reader of clicks over a pool.
func (c *serveCommand) clickReader(pool *pgxpool.Pool) *clicks.Reader {
	return clicks.NewReader(pool, c.ClickRetention, func(orgKey, host, code string) string {
		return catalog.ShortURL(string(c.LinkBaseURL), orgKey, host, code)
	})
}

// newRegistry returns all metrics of control; deploy/metrics.md lists them. Metrics of session tokens and of the canary are missing when
// these are off.
func newRegistry(b *backends, options api.Options, server *api.Server, metrics *jobs.Metrics, watcher *canary.Canary) *prometheus.Registry {
	registry := admin.Metrics("control")
	registry.MustRegister(server.Collectors()...)
	registry.MustRegister(options.Relay.Collectors()...)
	registry.MustRegister(metrics.Collectors()...)
	if options.Sessions != nil {
		registry.MustRegister(options.Sessions.Collectors()...)
	}
	if watcher != nil {
		registry.MustRegister(watcher.Collectors()...)
	}
	registry.MustRegister(admin.Pools{
		Postgres: map[string]func() *pgxpool.Stat{
			"requests": b.requests.Stat, "phones": b.sdk.Stat, "relay": b.relay.Stat, "duties": b.jobs.Stat,
			"clicks": b.clicks.Stat, "figures": b.figures.Stat,
		},
		Redis: map[string]func() *redis.PoolStats{"hints": b.hints.PoolStats, "limits": b.counter.PoolStats},
	})
	return registry
}

const (
	// minSDKConnections is one connection that authenticates keys, and two so that one organization cannot hold all the others.
	minSDKConnections = 3
	// relayConnections read the table edges. Calls that wait hold none.
	relayConnections = 2
	// jobConnections are for readiness, the background jobs and the canary, which must not wait for each other.
	jobConnections = 4
)

// backends are the connections of control serve. Separate pools keep SDK requests from delaying requests that edit links, and both from
// delaying the relay, readiness and the background jobs.
type backends struct {
	requests, sdk, relay, jobs *pgxpool.Pool
	// clicks is for the jobs of clicks, figures for requests of their figures.
	clicks, figures *pgxpool.Pool
	hints, counter  redis.UniversalClient
}

// openBackends opens all pools and clients. It waits for no connection, so a server that is down is no error.
func openBackends(t *env, c *serveCommand) (_ *backends, err error) {
	b := new(backends)
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.requests, err = t.openPool(c.Connections); err != nil {
		return nil, err
	}
	if b.sdk, err = t.openPool(c.SDKConnections); err != nil {
		return nil, err
	}
	if b.relay, err = t.openPool(relayConnections); err != nil {
		return nil, err
	}
	if b.jobs, err = t.openPool(jobConnections); err != nil {
		return nil, err
	}
	if b.clicks, err = t.openPool(clicks.JobConnections); err != nil {
		return nil, err
	}
	if b.figures, err = t.openPool(clicks.RequestConnections); err != nil {
		return nil, err
	}
	if b.hints, err = bus.Open(string(c.RedisURL)); err != nil {
		return nil, err
	}
	// Redis connections are opened in advance, so that no request waits for one. A check holds a connection for less than 0.1 ms.
	b.counter, err = ratelimit.Open(string(c.RedisURL), ratelimit.Connections)
	return b, err
}

// close closes all pools and clients, and waits for the connections in use.
func (b *backends) close() {
	for _, pool := range []*pgxpool.Pool{b.requests, b.sdk, b.relay, b.jobs, b.clicks, b.figures} {
		if pool != nil {
			pool.Close()
		}
	}
	for _, client := range []redis.UniversalClient{b.hints, b.counter} {
		if client != nil {
			client.Close()
		}
	}
}

// readyTimeout bounds one check.
const readyTimeout = time.Second

var errStopping = errors.New("stopping")

// readiness decides whether load balancers should send requests to this process.
type readiness struct {
	store *store.Store
	ended atomic.Bool
}

// end makes every later check fail.
func (r *readiness) end() { r.ended.Store(true) }

// check returns nil when Postgres responds and has all migrations that this program knows. It does not check Redis: without Redis the service
// is slower and still correct.
func (r *readiness) check() error {
	if r.ended.Load() {
		return errStopping
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	known, err := migrations.Versions()
	if err != nil {
		return err
	}
	applied, err := r.store.Migrated(ctx)
	if err != nil {
		return err
	}
	if missing := slices.DeleteFunc(slices.Clone(known), func(v int64) bool { return slices.Contains(applied, v) }); len(missing) > 0 {
		return fmt.Errorf("the database lacks the migrations %v", missing)
	}
	return nil
}
