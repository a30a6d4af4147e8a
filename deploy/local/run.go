package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/deploy/stack"
)

const (
	// stopTimeout bounds how long each program may take to end.
	stopTimeout = 15 * time.Second
	// addressAttempts bounds the attempts to choose addresses if other programs take their ports.
	addressAttempts = 3
)

// run serves until ctx ends. A server or program that ends before that is restarted.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := folder()
	if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := remove(dir); err != nil {
		return err
	}
	addrs, err := reserveAddresses()
	if err != nil {
		return err
	}
	defer func() { addrs.release() }()
	say := newPrinter(out)

	say.step("building control and edge")
	bin := filepath.Join(dir, "bin")
	if err := stack.Build(ctx, bin); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "deeplink.log"))
	if err != nil {
		return err
	}
	defer log.Close()

	say.step("starting PostgreSQL and Redis")
	s, err := stack.Open(ctx, stack.Options{Dir: dir, Bin: bin, Durable: true, LinkBase: "http://" + addrs.edges[0].addr, Output: log})
	if err != nil {
		return err
	}
	// The signal that ends ctx must not interrupt the orderly stop.
	ending := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, s.Close(ending)) }()
	if elsewhere := s.PostgresElsewhere(); elsewhere != "" {
		say.note("PostgreSQL's user can't reach %s; its data is in %s", dir, elsewhere)
	}
	demo, err := demoOrganization(ctx, s, filepath.Join(dir, "organization.json"))
	if err != nil {
		return err
	}

	say.step("starting control and two edges")
	var f *fleet
	for attempt := 1; ; attempt++ {
		if f, err = startFleet(ctx, s, addrs, demo, dir); err == nil {
			break
		}
		if !errors.Is(err, errAddressTaken) || attempt == addressAttempts {
			return fmt.Errorf("%w (see %s)", err, log.Name())
		}
		others, err := reserveAddresses()
		if err != nil {
			return err
		}
		addrs = others
		s.ServeLinksAt("http://" + addrs.edges[0].addr)
	}
	defer func() { err = errors.Join(err, f.stop(ending)) }()

	r := ready{
		EdgeURL: f.nodes[1].url(), EdgeURLs: []string{f.nodes[1].url(), f.nodes[2].url()}, ControlURL: f.nodes[0].url(),
		IdentityURL: f.identity.issuer, DatabaseURL: s.Owner, RedisURL: s.Redis.URL(), Organization: demo,
	}
	if r.ConsoleURL, r.ConsoleLink, err = consoleLink(ctx, s, r.ControlURL); err != nil {
		return err
	}
	if err := r.write(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(dir)) }()
	say.banner(r, dir, shortPath(filepath.Join(dir, "env")))
	return f.serve(ctx, s, say.logTo(log))
}

// fleet holds everything except PostgreSQL and Redis: the identity provider, control and the edges.
type fleet struct {
	identity *identity
	listener net.Listener // of the identity provider, until it serves
	nodes    []*node      // control, then the edges
}

// node is a program that can be started again at the same address.
type node struct {
	name  string
	start func(context.Context) (*stack.Node, error)

	mu      sync.Mutex
	current *stack.Node
}

func (n *node) get() *stack.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current
}

func (n *node) url() string { return n.get().URL() }

// restart replaces a process that has ended.
func (n *node) restart(ctx context.Context) error {
	fresh, err := n.start(ctx)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current = fresh
	return nil
}

// errAddressTaken is what startFleet returns if another program took a port between its choice and its use.
var errAddressTaken = errors.New("another program took the port")

// startFleet starts control and the edges at addrs, which it releases.
func startFleet(ctx context.Context, s *stack.Stack, addrs *addresses, demo organization, dir string) (_ *fleet, err error) {
	defer addrs.release()
	f := new(fleet)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop(context.WithoutCancel(ctx)))
		}
	}()
	if f.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if f.identity, err = newIdentity("http://"+f.listener.Addr().String(), addrs.control.addr, filepath.Join(dir, "identity.pem")); err != nil {
		return nil, err
	}
	keys, err := readOrCreateSessionKeys(filepath.Join(dir, "session-keys"))
	if err != nil {
		return nil, err
	}
	settings := append(f.identity.portalSettings(keys), "CONTROL_CANARY=10s")
	if err := f.start(ctx, "control", &addrs.control, func(ctx context.Context, addr string) (*stack.Node, error) {
		return s.StartControl(ctx, addr, settings...)
	}); err != nil {
		return nil, err
	}
	for i := range addrs.edges {
		// By number: an edge gets another address in the next run, and must find the clicks that it has not shipped.
		clicks := "EDGE_CLICKS_DIR=" + filepath.Join(dir, "clicks", fmt.Sprintf("edge-%d", i+1))
		if err := f.start(ctx, "edge", &addrs.edges[i], func(ctx context.Context, addr string) (*stack.Node, error) {
			return s.StartEdge(ctx, addr, clicks)
		}); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context, program string, at *reservation, start func(context.Context, string) (*stack.Node, error)) error {
	addr := at.addr
	n := &node{name: program + " on " + addr, start: func(ctx context.Context) (*stack.Node, error) { return start(ctx, addr) }}
	at.release()
	if err := n.restart(ctx); err != nil {
		if inUse(addr) {
			return fmt.Errorf("%w %s: %w", errAddressTaken, addr, err)
		}
		return err
	}
	f.nodes = append(f.nodes, n)
	return nil
}

// serve returns when ctx ends or the identity provider fails, and all restarts have ended.
func (f *fleet) serve(ctx context.Context, s *stack.Stack, log func(string, ...any)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.identity.serve(ctx, f.listener) })
	keepers := []keeper{
		{name: "PostgreSQL", exited: s.Postgres.Exited, start: s.Postgres.Start, log: log},
		{name: "Redis", exited: s.Redis.Exited, start: s.Redis.Start, log: log},
	}
	for _, n := range f.nodes {
		keepers = append(keepers, keeper{name: n.name, exited: func() <-chan struct{} { return n.get().Exited() }, start: n.restart, log: log})
	}
	for _, k := range keepers {
		group.Go(func() error {
			k.keep(ctx)
			return nil
		})
	}
	return group.Wait()
}

// stop ends the programs, the last one first, so that every edge can deregister while control runs.
func (f *fleet) stop(ctx context.Context) error {
	var errs []error
	for i := len(f.nodes) - 1; i >= 0; i-- {
		errs = append(errs, f.nodes[i].get().Stop(ctx, stopTimeout))
	}
	if f.listener != nil {
		if err := f.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// folder returns the folder for all files: RUN_DIR, or .run.
func folder() (string, error) {
	dir := os.Getenv("RUN_DIR")
	if dir == "" {
		dir = ".run"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(filepath.Join(dir, "bin"), 0o755)
}

// shortPath returns a path as a user of the working directory would type it.
func shortPath(path string) string {
	working, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(working, path); err == nil && filepath.IsLocal(short) {
		return short
	}
	return path
}

// lock refuses a second `make run` in the same folder.
func lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another `make run` uses %s", dir), file.Close())
	}
	return func() { file.Close() }, nil
}
