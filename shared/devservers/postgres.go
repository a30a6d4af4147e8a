package devservers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions say how a PostgreSQL server runs.
type PostgresOptions struct {
	// Dir holds the data, the superuser's password and the log. What is missing is made; what is there is used again.
	Dir string
	// Port 0 stands for a free one.
	Port int
	// Durable data survive a power failure. Without it they survive the death of the server only, which is faster.
	Durable bool
}

// Postgres is a private PostgreSQL server. Its methods may be called from several goroutines.
type Postgres struct {
	// Dir is where the data are: the folder of the options, or, when that cannot be reached by the unprivileged user
	// which the server has to run as, one under /var/lib that belongs to it.
	Dir string

	cluster cluster
	port    int
	durable bool

	mu    sync.Mutex
	child *child
}

// StartPostgres starts a server, with its data made first if there are none, and returns when it answers. A server that
// a process before this one left behind on the same data is ended first.
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	c, err := openCluster(ctx, options.Dir, options.Durable)
	if err != nil {
		return nil, fmt.Errorf("prepare PostgreSQL in %s: %w", options.Dir, err)
	}
	p := &Postgres{Dir: c.dir, cluster: c, port: options.Port, durable: options.Durable}
	if err := withPort(&p.port, func() error { return p.Start(ctx) }); err != nil {
		return nil, err
	}
	return p, nil
}

// URL returns the address of the database "postgres" as its superuser, password included.
func (p *Postgres) URL() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, p.cluster.password),
		Host:     p.Addr(),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Addr returns host and port. It is the same after every Start.
func (p *Postgres) Addr() string {
	return loopback(p.port)
}

// Exited returns a channel that is closed when the process that runs now has ended.
func (p *Postgres) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child.exited
}

// Start starts a server that was stopped, on the port and data it had. It does nothing to one that runs.
func (p *Postgres) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child.running() {
		return nil
	}
	if err := p.cluster.evict(); err != nil {
		return fmt.Errorf("end the PostgreSQL that was left on %s: %w", p.Dir, err)
	}
	log, err := os.OpenFile(p.cluster.log(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open PostgreSQL's log: %w", err)
	}
	defer log.Close()
	cmd := p.cluster.command("postgres", p.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	// SIGQUIT, because it ends all of the server's processes at once, whatever they are doing.
	c, err := spawn(cmd, syscall.SIGQUIT)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	// Only this server knows the password, so no other server on the port can pass for it.
	if err := await(ctx, c, p.answers); err != nil {
		_ = c.signal(syscall.SIGQUIT)
		_ = c.wait(context.WithoutCancel(ctx), killTimeout)
		return fmt.Errorf("start PostgreSQL: %w\n%s", err, tail(p.cluster.log()))
	}
	p.child = c
	return nil
}

func (p *Postgres) arguments() []string {
	settings := []string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(p.port),
		// The path of a socket is limited to 107 bytes, and no client needs one.
		"unix_socket_directories=",
		"max_connections=300",
	}
	if p.durable {
		// Ids of events are random, so each new one changes some page of a large index. At the defaults (128 MB, 1 GB) pages are written
		// out to make room, and logged whole after checkpoints that come twice a minute: five million ids make Postgres work a quarter
		// more for each event and log two thirds more. `bench events fill` tells.
		settings = append(settings, "shared_buffers=1GB", "max_wal_size=4GB")
	} else {
		// Not synchronous_commit: without it a commit is lost when the server dies, as it does in tests.
		settings = append(settings, "fsync=off", "full_page_writes=off")
	}
	arguments := []string{"-D", p.cluster.data()}
	for _, s := range settings {
		arguments = append(arguments, "-c", s)
	}
	return arguments
}

func (p *Postgres) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Stop ends the server in order: clients are disconnected and the data are written out. After 30 s or the end of ctx it
// is killed, which costs the next start a recovery and loses nothing.
func (p *Postgres) Stop(ctx context.Context) error {
	return p.end(ctx, syscall.SIGINT, stopTimeout)
}

// StopImmediate ends the server without writing anything out, as a crash would.
func (p *Postgres) StopImmediate() error {
	return p.end(context.Background(), syscall.SIGQUIT, killTimeout)
}

// Kill ends all processes of the server at once, as a power failure would.
func (p *Postgres) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.child.running() {
		return nil
	}
	// Stopped first, so that none is born or answers in between.
	if err := errors.Join(p.signalAll(syscall.SIGSTOP), p.signalAll(syscall.SIGKILL)); err != nil {
		return err
	}
	<-p.child.exited
	return nil
}

// Restart is Stop and Start.
func (p *Postgres) Restart(ctx context.Context) error {
	return errors.Join(p.Stop(ctx), p.Start(ctx))
}

// Pause freezes the server with all of its processes: connections stay open, new ones are accepted by the kernel, and
// nothing answers.
func (p *Postgres) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.child.running() {
		return errNotRunning
	}
	return p.signalAll(syscall.SIGSTOP)
}

// Resume ends a Pause.
func (p *Postgres) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.child.running() {
		return errNotRunning
	}
	return p.signalAll(syscall.SIGCONT)
}

func (p *Postgres) end(ctx context.Context, signal syscall.Signal, limit time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.child.running() {
		return nil
	}
	if err := p.child.signal(signal); err != nil {
		return err
	}
	// A paused process does not hear the signal otherwise.
	if err := p.signalAll(syscall.SIGCONT); err != nil {
		return err
	}
	return p.child.wait(ctx, limit)
}

// CrashBackend kills one backend of the server, whereupon the others end, and the server recovers as from a crash without having been
// started again.
func (p *Postgres) CrashBackend(pid uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.child.running() {
		return errNotRunning
	}
	children, err := childrenOf(p.child.process.Pid)
	if err != nil {
		return fmt.Errorf("list PostgreSQL's processes: %w", err)
	}
	if !slices.Contains(children, int(pid)) {
		return fmt.Errorf("crash a backend: %d is none of this server", pid)
	}
	return tell(int(pid), syscall.SIGKILL)
}

// signalAll signals the postmaster and then its children: once it is stopped there will be no new ones.
func (p *Postgres) signalAll(signal syscall.Signal) error {
	if err := p.child.signal(signal); err != nil {
		return err
	}
	children, err := childrenOf(p.child.process.Pid)
	if err != nil {
		return fmt.Errorf("list PostgreSQL's processes: %w", err)
	}
	for _, pid := range children {
		if err := tell(pid, signal); err != nil {
			return err
		}
	}
	return nil
}
