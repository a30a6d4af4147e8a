// Edge answers clicks: it sends whoever opens a short URL where the link leads, from memory, and never to where a link led
// before a change that control has finished. It writes nothing but its own row in the registry of edges and the
// match tokens that are spent.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/replica"
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
	// leaveTimeout bounds the way out of the registry of edges. Control waits for the row no longer than the lease.
	leaveTimeout = 3 * time.Second
	// shutdownTimeout bounds the end of the requests that were under way; the longest is one that writeTimeout ends.
	shutdownTimeout = 15 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// From the first signal on the next one kills, as it would without us.
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
	room := heapRoom(c.CacheBytes)
	ready := readyMemory(room, memoryLimit())
	memory := reserveHugePages(room)
	go memory.take(ready)
	defer collectLate(ready)()
	if err := serve(ctx, c, c.Logger(stderr)); err != nil {
		fmt.Fprintln(stderr, "edge:", err)
		return exitFailed
	}
	return 0
}

// serve serves until ctx ends, and then goes in order: readiness is given up, balancers get time to notice, the right to answer
// from memory and the place in the registry are given up, no request is accepted any more, those under way are answered, then
// the replica ends that they ask, then the connections close.
func serve(ctx context.Context, c *options, log *slog.Logger) error {
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
	matches, err := openMatches(ctx, c)
	if err != nil {
		return err
	}
	defer matches.close()

	// Before the replica takes its slot: who cannot listen must not make control wait for it.
	public, err := listen(string(c.Addr))
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
	pages := new(errorPages)
	links, err := replica.New(replica.Options{
		Database: database, Redis: hints, Slot: slot, Address: c.address(public.Addr()), Release: release.Version(),
		Lease: c.Lease, StaleIfError: c.StaleIfError, CacheBytes: c.CacheBytes, Load: loadFrom(from, string(c.LinkBaseURL), pages), Log: log,
	})
	if err != nil {
		return err
	}
	defer links.Close()
	s := newServer(c, links, pages, matches, log)
	if s.tokens == nil {
		log.Warn("without MATCH_TOKEN_KEYS pages carry no token, and nothing is ever matched")
	}
	metrics := s.registry(from, hints)

	// What must outlive the requests ends with duties, which ends after them.
	duties, endDuties := context.WithCancel(context.WithoutCancel(ctx))
	defer endDuties()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return admin.Serve(duties, private, s.ready, metrics) })
	group.Go(func() error { return links.Run(duties) })
	group.Go(func() error { return s.http.Serve(public) })
	log.Info("serving", "address", public.Addr().String(), "admin", private.Addr().String(), "slot", slot)
	group.Go(func() error {
		defer endDuties()
		<-ctx.Done()
		log.Info("stopping")
		s.drain()
		time.Sleep(c.Drain)
		leaving, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		if err := links.Leave(leaving); err != nil {
			log.Warn("left without a word: control waits until the lease is over", "error", err)
		}
		ending, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		return s.shutdown(ending, public)
	})
	return group.Wait()
}
