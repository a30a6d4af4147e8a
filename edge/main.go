// Edge serves clicks: it sends the visitor of a short URL to the link's destination, from its cache, and never to a destination that was
// replaced by a change which control has confirmed. It records each click. In Postgres it writes only its own row in the table edges, the match
// tokens that were redeemed, and clicks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"deeplink/edge/internal/clicks"
	"deeplink/edge/internal/conn"
	"deeplink/edge/internal/match"
	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/replica"
	"deeplink/edge/internal/wellknown"
	"deeplink/shared/admin"
	"deeplink/shared/bus"
	"deeplink/shared/release"
)

// Exit codes.
const (
	exitFailed   = 1
	exitSettings = 2
)

const (
	// leaveTimeout bounds deregistration. If it fails, control waits until the lease expires.
	leaveTimeout = 3 * time.Second
	// shutdownTimeout bounds the wait for running requests. writeTimeout ends the longest of them.
	shutdownTimeout = 15 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal, a second one kills the process at once.
	context.AfterFunc(ctx, stop)
	bus.Silence()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code. Help goes to stdout, everything else to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parseSettings(args, stdout, stderr, os.Exit)
	if err != nil {
		fmt.Fprintln(stderr, "edge:", err)
		return exitSettings
	}
	setMemoryLimit(containerMemory())
	if err := serve(ctx, c, c.Logger(stderr)); err != nil {
		fmt.Fprintln(stderr, "edge:", err)
		if errors.Is(err, clicks.ErrSettings) {
			return exitSettings
		}
		return exitFailed
	}
	return 0
}

// serve runs until ctx ends. Then it stops in this order: /readyz fails, load balancers get time to drain, the replica gives up its lease
// and then its row in edges, the listener closes, running requests are answered, the replica stops, and the connection pools close.
func serve(ctx context.Context, c *options, log *slog.Logger) error {
	c.deriveBounds(availableMemory(), openFiles())
	database, err := c.DatabaseURL.Config()
	if err != nil {
		return err
	}
	from, err := origin.Open(ctx, string(c.DatabaseURL), int32(c.Connections))
	if err != nil {
		return err
	}
	defer from.Close()
	hints, err := bus.Open(string(c.RedisURL))
	if err != nil {
		return err
	}
	defer hints.Close()
	tokens, err := match.Open(ctx, match.Options{
		DatabaseURL: string(c.DatabaseURL), RedisURL: string(c.RedisURL), LinkBaseURL: string(c.LinkBaseURL), Keys: c.MatchTokenKeys.keys(),
	})
	if err != nil {
		return err
	}
	defer tokens.Close()

	// Listen before the replica takes its slot: control must not wait for an edge that cannot listen.
	bounds := conn.NewBounds(c.MaxConnections, c.MaxConnectionsPerIP, c.TrustedProxies.Proxies)
	public, err := conn.Listen(string(c.Addr), bounds)
	if err != nil {
		return err
	}
	defer public.Close()
	private, err := net.Listen("tcp", string(c.AdminAddr))
	if err != nil {
		return err
	}
	defer private.Close()

	slot, err := c.slot(public.Addr())
	if err != nil {
		return err
	}
	wantErrorPages := new(errorPages)
	links, err := replica.New(replica.Options{
		Database: database, Redis: hints, Slot: slot, Address: c.address(public.Addr()), Release: release.Version(),
		Lease: c.Lease, StaleIfError: c.StaleIfError, CacheBytes: c.CacheBytes, Load: newLoad(from, string(c.LinkBaseURL), wantErrorPages), IsFile: wellknown.IsFile, Log: log,
	})
	if err != nil {
		return err
	}
	defer links.Close()
	recorder, err := clicks.New(clicks.Options{
		On: c.Clicks == "on", Dir: c.ClicksDir, Bytes: c.ClicksBytes, Sync: c.ClicksSync, Database: database, Slot: slot, Incarnation: uuid.MustParse(links.Incarnation()),
		CountryHeader: c.CountryHeader, Proxies: c.TrustedProxies.Proxies, GeoIPFile: c.GeoIPFile, Log: log,
	})
	if err != nil {
		return err
	}
	if c.CountryHeader != "" && len(c.TrustedProxies.Proxies) == 0 {
		log.Warn("EDGE_COUNTRY_HEADER has no effect: TRUSTED_PROXIES is not set, so no peer may name a country")
	}
	s := newServer(c, links, wantErrorPages, tokens, recorder, log)
	if !tokens.Enabled() {
		log.Warn("MATCH_TOKEN_KEYS is not set: pages carry no match token, and POST /match never matches")
	}
	metrics := s.registry(from, hints)
	metrics.MustRegister(bounds.Collectors()...)
	metrics.MustRegister(recorder.Collectors()...)

	// Background jobs must outlive the requests, so they have a context of their own.
	backgroundJobs, endBackgroundJobs := context.WithCancel(context.WithoutCancel(ctx))
	defer endBackgroundJobs()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return admin.Serve(backgroundJobs, private, s.ready, metrics) })
	group.Go(func() error { return links.Run(backgroundJobs) })
	// Before the first click: a click from before the registration is marked late.
	recorder.Register(ctx)
	group.Go(func() error { return recorder.Run(backgroundJobs) })
	group.Go(func() error { return s.http.Serve(public) })
	log.Info("serving", "address", public.Addr().String(), "admin", private.Addr().String(), "slot", slot, "cacheBytes", c.CacheBytes,
		"maxConnections", c.MaxConnections, "maxConnectionsPerIP", c.MaxConnectionsPerIP, "rateLimitAddresses", c.RateLimitAddresses)
	group.Go(func() error {
		defer endBackgroundJobs()
		<-ctx.Done()
		log.Info("stopping")
		s.drain()
		time.Sleep(c.Drain)
		leaving, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		if err := links.Leave(leaving); err != nil {
			log.Warn("could not deregister; control will wait for the lease to expire", "error", err)
		}
		ending, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		return s.shutdown(ending, public)
	})
	err = group.Wait()
	// After the last response: no click is recorded any more.
	return errors.Join(err, recorder.Finish(context.Background()))
}
