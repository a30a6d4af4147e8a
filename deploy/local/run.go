package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/deploy/stack"
	"deeplink/shared/daemon"
)

// stopTimeout bounds how long each program may take to end.
const stopTimeout = 15 * time.Second

// ready is .run/ready.json (decisions.md 10).
type ready struct {
	EdgeURL      string       `json:"edgeUrl"`
	EdgeURLs     []string     `json:"edgeUrls"`
	ControlURL   string       `json:"controlUrl"`
	IdentityURL  string       `json:"identityUrl"`
	DatabaseURL  string       `json:"databaseUrl"`
	RedisURL     string       `json:"redisUrl"`
	Organization organization `json:"organization"`
}

// run serves until ctx ends or one of the programs does.
func run(ctx context.Context) (err error) {
	dir, err := folder()
	if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	readyFile := filepath.Join(dir, "ready.json")
	if err := os.Remove(readyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	addrs, err := addresses()
	if err != nil {
		return err
	}
	say := newPrinter(os.Stdout)

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
	s, err := stack.Open(ctx, stack.Options{Dir: dir, Bin: bin, Durable: true, LinkBase: "http://" + addrs.edges[0], Output: log})
	if err != nil {
		return err
	}
	// The end must not be cut short by the signal that asked for it.
	ending := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, s.Close(ending)) }()
	if elsewhere := s.PostgresElsewhere(); elsewhere != "" {
		say.note("PostgreSQL's user can't reach %s; the data are in %s", dir, elsewhere)
	}
	demo, err := demoOrganization(ctx, s, filepath.Join(dir, "organization.json"))
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	defer func() {
		if waited := group.Wait(); err == nil && !errors.Is(waited, context.Canceled) {
			err = waited
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	identityURL := "http://" + ln.Addr().String()
	provider, err := newIdentity(identityURL, addrs.control, filepath.Join(dir, "identity.pem"))
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	group.Go(func() error { return provider.serve(ctx, ln) })

	say.step("starting control and two edges")
	var nodes []*stack.Node
	defer func() { err = errors.Join(err, stop(ending, nodes)) }()
	control, err := s.StartControl(ctx, addrs.control, append(provider.portalSettings(demo.ExternalID), "CONTROL_CANARY=10s")...)
	if err != nil {
		return fmt.Errorf("%w (see %s)", err, log.Name())
	}
	nodes = append(nodes, control)
	for _, addr := range addrs.edges {
		edge, err := s.StartEdge(ctx, addr)
		if err != nil {
			return fmt.Errorf("%w (see %s)", err, log.Name())
		}
		nodes = append(nodes, edge)
	}

	r := ready{
		EdgeURL: nodes[1].URL(), EdgeURLs: []string{nodes[1].URL(), nodes[2].URL()}, ControlURL: control.URL(),
		IdentityURL: identityURL, DatabaseURL: s.Owner, RedisURL: s.Redis.URL(), Organization: demo,
	}
	if err := writeJSON(readyFile, r); err != nil {
		return err
	}
	defer os.Remove(readyFile)
	say.banner(r, dir)
	return wait(ctx, s, nodes)
}

// wait returns nil when ctx ends, and an error when a process ends by itself.
func wait(ctx context.Context, s *stack.Stack, nodes []*stack.Node) error {
	ended := make(chan error, len(nodes)+2)
	watch := func(name string, exited <-chan struct{}) {
		select {
		case <-exited:
			ended <- fmt.Errorf("%s ended by itself; see deeplink.log", name)
		case <-ctx.Done():
		}
	}
	for _, n := range nodes {
		go watch("the program on "+n.Addr, n.Exited())
	}
	go watch("PostgreSQL", s.Postgres.Exited())
	go watch("Redis", s.Redis.Exited())
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// stop ends the programs, the last started first, so that no edge loses its control before it has left.
func stop(ctx context.Context, nodes []*stack.Node) error {
	var errs []error
	for i := len(nodes) - 1; i >= 0; i-- {
		errs = append(errs, nodes[i].Stop(ctx, stopTimeout))
	}
	return errors.Join(errs...)
}

// folder is where everything is kept: RUN_DIR, or .run.
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

// lock keeps a second `make run` out of the folder.
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

type serving struct {
	control string
	edges   [2]string
}

// addresses chooses where to serve: EDGE_ADDR and CONTROL_ADDR when they are set; the second edge takes the next free port
// after the first.
func addresses() (serving, error) {
	edge, err := address("EDGE_ADDR", "127.0.0.1:8080", "")
	if err != nil {
		return serving{}, err
	}
	control, err := address("CONTROL_ADDR", "127.0.0.1:8081", edge)
	if err != nil {
		return serving{}, err
	}
	host, port, _ := net.SplitHostPort(edge)
	first, _ := strconv.Atoi(port)
	for next := first + 1; next < first+100 && next < 1<<16; next++ {
		addr := net.JoinHostPort(host, strconv.Itoa(next))
		if addr != control && free(addr) {
			return serving{control: control, edges: [2]string{edge, addr}}, nil
		}
	}
	return serving{}, fmt.Errorf("no free port for the second edge within 100 after %s", edge)
}

// address returns the setting, with 127.0.0.1 where it names no host and a free port where that is 0. Without one it returns
// the usual address, or a free port when that is in use.
func address(setting, usual, taken string) (string, error) {
	if wish := os.Getenv(setting); wish != "" {
		host, port, err := net.SplitHostPort(wish)
		if err != nil {
			return "", fmt.Errorf("%s: %w", setting, err)
		}
		if host == "" || host == "0.0.0.0" || host == "::" {
			host = "127.0.0.1"
		}
		if port != "0" {
			return net.JoinHostPort(host, port), nil
		}
	} else if usual != taken && free(usual) {
		return usual, nil
	}
	return daemon.FreeAddr()
}

func free(addr string) bool {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

func writeJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return replace(file, append(text, '\n'))
}

// replace gives file its content in one step: who reads it finds all of it or nothing, even when we are killed meanwhile. It holds keys,
// so only its owner may read it.
func replace(file string, content []byte) error {
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
