package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/faults/proxy"
	"deeplink/bench/prove/fleet"
	"deeplink/deploy/stack"
	"deeplink/shared/devservers"
)

const rigEdges, rigControls = 3, 2

// rig is a fleet in which every process has its own proxies to Postgres and Redis, so that each process can be cut off from either. The
// last edge has S = 0: it responds 503 where the others continue to serve.
type rig struct {
	*stack.Stack
	dir             string
	edges, controls []*member
	operator        *member // the command line: each command is a new process, but uses the same links
	owner           *pgxpool.Pool
	stores          stores
	stale           []time.Duration // S of each edge

	mu     sync.Mutex
	second *devservers.Redis // the replica of Redis, or the primary after a failover
	failed bool              // after a failover: second is the primary
}

// member is a process with its address and its links. It restarts at the same address, on the same slot.
type member struct {
	name            string
	addr            string
	postgres, redis *proxy.Proxy
	launch          func() (*stack.Node, error)

	mu     sync.Mutex
	node   *stack.Node
	ending bool // the rig has stopped it
}

// openRig starts a rig of the programs in bin. stale is S of all edges but the last. Logs of the processes go to log.
func openRig(ctx context.Context, bin string, stale time.Duration, log io.Writer) (r *rig, err error) {
	return openRigOn(ctx, bin, stale, log, proxied{})
}

// stores are the servers of a rig in addition to those of the stack, and how its members reach them.
type stores interface {
	// start runs before the members start.
	start(ctx context.Context, r *rig) error
	// database returns the URL with which a member (nil: a command) reaches the database of url; redis returns that of Redis.
	database(url string, m *member) string
	redis(m *member) string
	close() error
}

// proxied are the stores of the stack, behind the proxies of each member.
type proxied struct{}

func (proxied) start(context.Context, *rig) error { return nil }
func (proxied) redis(m *member) string            { return "redis://" + m.redis.Addr() }
func (proxied) close() error                      { return nil }

func (proxied) database(url string, m *member) string {
	if m == nil {
		return url
	}
	return through(url, m.postgres)
}

// openRigOn is openRig with other stores.
func openRigOn(ctx context.Context, bin string, stale time.Duration, log io.Writer, on stores) (r *rig, err error) {
	r = &rig{stale: []time.Duration{stale, stale, 0}, stores: on}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
		}
	}()
	if r.dir, err = os.MkdirTemp("", "deeplink-rig-"); err != nil {
		return r, err
	}
	addrs, err := fleet.FreeAddrs(rigEdges + rigControls)
	if err != nil {
		return r, err
	}
	r.Stack, err = stack.Open(ctx, stack.Options{
		Dir: r.dir, Bin: bin, Durable: true, LinkBase: "http://" + addrs[0], Output: &fleet.LockedWriter{Out: log},
	})
	if err != nil {
		return r, err
	}
	if r.second, err = devservers.StartRedis(ctx, devservers.RedisOptions{Dir: filepath.Join(r.dir, "redis2")}); err != nil {
		return r, err
	}
	if err = replicate(ctx, r.second, r.Redis); err != nil {
		return r, err
	}
	if err = on.start(ctx, r); err != nil {
		return r, err
	}
	if err = r.enlist(addrs); err != nil {
		return r, err
	}
	if r.owner, err = pgxpool.New(ctx, on.database(r.Owner, nil)); err != nil {
		return r, err
	}
	group, starting := errgroup.WithContext(ctx)
	for _, m := range r.members() {
		group.Go(func() error { return m.start(starting) })
	}
	return r, group.Wait()
}

// enlist creates the members with their links, and starts none.
func (r *rig) enlist(addrs []string) (err error) {
	for i := range rigEdges {
		m := &member{name: fmt.Sprintf("edge %d", i), addr: addrs[i]}
		if err := m.link(r.Postgres.Addr(), r.Redis.Addr()); err != nil {
			return err
		}
		settings := []string{
			"DATABASE_URL=" + r.stores.database(r.Edge, m), "REDIS_URL=" + r.stores.redis(m),
			"EDGE_LEASE=" + fleet.Lease.String(), "EDGE_STALE_IF_ERROR=" + r.stale[i].String(), "TRUSTED_PROXIES=127.0.0.1/32",
		}
		m.launch = func() (*stack.Node, error) { return r.LaunchEdge(m.addr, settings...) }
		r.edges = append(r.edges, m)
	}
	for i := range rigControls {
		m := &member{name: fmt.Sprintf("control %d", i), addr: addrs[rigEdges+i]}
		if err := m.link(r.Postgres.Addr(), r.Redis.Addr()); err != nil {
			return err
		}
		settings := []string{"DATABASE_URL=" + r.stores.database(r.Control, m), "REDIS_URL=" + r.stores.redis(m)}
		m.launch = func() (*stack.Node, error) { return r.LaunchControl(m.addr, settings...) }
		r.controls = append(r.controls, m)
	}
	r.operator = &member{name: "operator"}
	return r.operator.link(r.Postgres.Addr(), r.Redis.Addr())
}

// link creates the links of a member.
func (m *member) link(postgres, redis string) error {
	addrs, err := fleet.FreeAddrs(2)
	if err != nil {
		return err
	}
	if m.postgres, err = proxy.Listen(addrs[0], postgres); err != nil {
		return err
	}
	m.redis, err = proxy.Listen(addrs[1], redis)
	return err
}

// through returns a database URL that leads to a proxy.
func through(database string, p *proxy.Proxy) string {
	u, err := url.Parse(database)
	if err != nil {
		panic(err) // the stack created it
	}
	u.Host = p.Addr()
	return u.String()
}

// members are the processes that serve.
func (r *rig) members() []*member { return append(append([]*member{}, r.edges...), r.controls...) }

// linked are all members that have links.
func (r *rig) linked() []*member { return append(r.members(), r.operator) }

// operate runs an operator's command over the operator's links.
func (r *rig) operate(ctx context.Context, arguments ...string) ([]byte, error) {
	return r.OperateThrough(ctx, r.stores.database(r.Control, r.operator), r.stores.redis(r.operator), arguments...)
}

// close stops everything and removes the folder. No active fault delays it.
func (r *rig) close(ctx context.Context) error {
	var group errgroup.Group
	for _, m := range r.linked() {
		if m != nil {
			group.Go(func() error { return m.close(ctx) })
		}
	}
	errs := []error{group.Wait()}
	if r.owner != nil {
		r.owner.Close()
	}
	if r.second != nil {
		errs = append(errs, r.second.Kill())
	}
	errs = append(errs, r.stores.close())
	if r.Stack != nil {
		errs = append(errs, r.Redis.Kill(), r.Postgres.StopImmediate(), r.Stack.Close(ctx))
		if elsewhere := r.PostgresElsewhere(); elsewhere != "" {
			errs = append(errs, os.RemoveAll(elsewhere))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// close ends the process, in order if possible, and then its links.
func (m *member) close(ctx context.Context) error {
	var errs []error
	for _, p := range []*proxy.Proxy{m.postgres, m.redis} {
		if p != nil {
			errs = append(errs, p.Set(proxy.Rules{}))
		}
	}
	if m.node != nil {
		errs = append(errs, m.signal(syscall.SIGCONT), m.stop(ctx))
	}
	for _, p := range []*proxy.Proxy{m.postgres, m.redis} {
		if p != nil {
			p.Close()
		}
	}
	return errors.Join(errs...)
}

// start starts a stopped member, and waits until it is ready.
func (m *member) start(ctx context.Context) error {
	if err := m.launchAgain(); err != nil {
		return err
	}
	if err := m.running().Ready(ctx); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// launchAgain starts a stopped member, and does not wait for it.
func (m *member) launchAgain() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.launch()
	if err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	m.node, m.ending = node, false
	return nil
}

func (m *member) running() *stack.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

func (m *member) signal(signal syscall.Signal) error { return m.running().Signal(signal) }

// kill ends the process as a crash would.
func (m *member) kill() error { return m.end().Kill() }

// stop ends the process in order.
func (m *member) stop(ctx context.Context) error { return m.end().Stop(ctx, fleet.StopTimeout) }

func (m *member) end() *stack.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ending = true
	return m.node
}

// crashed returns how the process ended, "" if it runs or the rig has stopped it.
func (m *member) crashed() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ending || m.node == nil {
		return ""
	}
	return m.node.Exit()
}
