// Control is the API that edits deep links: it takes every write, keeps the truth in Postgres, and does not say that a link
// is gone before no edge answers it any more. The same program migrates the database and holds the operator's commands. It
// never answers a click: that is the edges' work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/store"
	"deeplink/migrations"
	"deeplink/shared/admin"
	"deeplink/shared/bus"
	"deeplink/shared/settings"
	"deeplink/shared/wire"
)

// Exit codes.
const (
	exitFailed   = 1
	exitSettings = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// From the first signal on the next one kills, as it would without us.
	context.AfterFunc(ctx, stop)
	bus.Silence()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs one command and returns its exit code. Results go to stdout, everything else to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, selected, err := parseCommand(args, stdout, stderr, os.Exit)
	if err != nil {
		fmt.Fprintln(stderr, "control:", err)
		return exitSettings
	}
	t := &task{ctx: ctx, database: c.DatabaseURL, log: c.Logger(stderr), out: stdout, err: stderr}
	err = selected.Run(t)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "control:", err)
	if errors.Is(err, errArgument) {
		return exitSettings
	}
	return exitFailed
}

// task is what every command is run with.
type task struct {
	ctx      context.Context
	database settings.Database
	log      *slog.Logger
	out, err io.Writer
}

// shutdownTimeout bounds the end of the requests that were under way when the drain was over. It is longer than requestTimeout. A phone
// that takes longer for its report is cut off and sends it again.
const shutdownTimeout = 12 * time.Second

// Run serves until the task's context ends, and then goes in order: readiness is given up, balancers get time to notice, no
// request is accepted any more, those under way are answered, then the relay they wait for ends, then the pools close.
func (c *serveCommand) Run(t *task) error {
	b, err := openBackends(t, c)
	if err != nil {
		return err
	}
	defer b.close()
	api, err := net.Listen("tcp", string(c.Addr))
	if err != nil {
		return err
	}
	defer api.Close()
	private, err := net.Listen("tcp", string(c.AdminAddr))
	if err != nil {
		return err
	}
	defer private.Close()

	s, err := newServer(b, c, t.log)
	if err != nil {
		return err
	}
	if s.tracing, err = openTracing(t.ctx, c.Collector, t.log); err != nil {
		return err
	}
	defer s.tracing.close()
	handler, err := s.handler()
	if err != nil {
		return err
	}
	httpServer := newHTTPServer(handler, t.log)
	duty := store.New(b.duties, string(c.LinkBaseURL))
	ready := &readiness{store: duty}
	counts := newDutyMetrics()
	var canary *canary
	if c.Canary > 0 {
		canary = newCanary(duty, s.relay, c.LinkBaseURL, c.Canary, t.log)
	}
	registry := s.registry(b, counts, canary)

	// duties outlive the requests, which wait for them.
	duties, endDuties := context.WithCancel(context.WithoutCancel(t.ctx))
	defer endDuties()
	group, ctx := errgroup.WithContext(t.ctx)
	group.Go(func() error { return admin.Serve(duties, private, ready.check, registry) })
	group.Go(func() error { return s.relay.Run(duties) })
	group.Go(func() error {
		return (&purger{store: duty, log: t.log, metrics: counts, retention: c.Retention}).run(duties)
	})
	group.Go(func() error { return tendSearchIndexes(duties, duty, counts, t.log) })
	if s.sessions != nil {
		group.Go(func() error { return s.sessions.Run(duties) })
	}
	if canary != nil {
		// It ends with the first signal: it needs the relay, and nobody needs it.
		group.Go(func() error { return canary.run(ctx) })
	}
	group.Go(func() error {
		if err := httpServer.Serve(enveloped{api, wire.NewGate(maxConnections)}); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the API: %w", err)
		}
		return nil
	})
	t.log.Info("serving", "address", api.Addr().String(), "admin", private.Addr().String())
	group.Go(func() error {
		defer endDuties()
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

// Run brings the database up to date and prints which migrations it ran.
func (*migrateCommand) Run(t *task) error {
	ran, err := migrations.Up(t.ctx, string(t.database))
	if err != nil {
		return err
	}
	if ran == nil {
		ran = []int64{}
	}
	return t.print(migrated{Applied: ran})
}
