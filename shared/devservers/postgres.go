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

// PostgresOptions configure a PostgreSQL server.
type PostgresOptions struct {
	// Dir holds the data, the superuser's password and the log. Missing parts are created; existing ones are reused.
	Dir string
	// Port 0 stands for a free port.
	Port int
	// Durable data survive a power failure. Otherwise they survive only the death of the server, which is faster.
	Durable bool
}

// Postgres is a private PostgreSQL server. Its methods are safe for concurrent use.
type Postgres struct {
	// Dir is the folder of the data: that of the options or, if the unprivileged user of the server cannot reach it, one under /var/lib
	// that belongs to that user.
	Dir string

	cluster cluster
	port    int
	durable bool

	mu    sync.Mutex
	child *child
}

// StartPostgres starts a server, after creating its data if there are none, and returns when it responds. It first ends a server that an
// earlier process left on the same data.
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

// URL returns the URL of the database "postgres" as its superuser, including the password.
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

// Addr returns host and port. They stay the same across restarts.
func (p *Postgres) Addr() string {
	return loopback(p.port)
}

// Exited returns a channel that is closed when the current process has ended.
func (p *Postgres) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child.exited
}

// Start starts a stopped server, with its former port and data. It does nothing if the server runs.
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
	// SIGQUIT ends all of the server's processes at once, whatever their state.
	c, err := spawn(cmd, syscall.SIGQUIT)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	// Only this server knows the password, so another server on the port cannot be mistaken for it.
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
		// Event ids are random, so each new one changes some page of a large index. With the defaults (128 MB, 1 GB) Postgres evicts such
		// pages, and logs them in full after checkpoints, which happen twice a minute: with five million ids, each event costs a quarter
		// more CPU time and two thirds more WAL. `prove drills events fill` shows it.
		settings = append(settings, "shared_buffers=1GB", "max_wal_size=4GB")
	} else {
		// Not synchronous_commit: without it a commit is lost when the server dies, which tests cause.
		settings = append(settings, "fsync=off", "full_page_writes=off", "max_wal_size=256MB")
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

// Stop ends the server in order: it disconnects clients and writes out the data. After 30 s or the end of ctx it is killed; the next start
// then needs a recovery, but no data are lost.
func (p *Postgres) Stop(ctx context.Context) error {
	return p.end(ctx, syscall.SIGINT, stopTimeout)
}

// StopImmediate ends the server without writing out data, as a crash would.
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
	// Stop the processes first, so that none forks or responds in between.
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

// Pause freezes all processes of the server: connections stay open, the kernel accepts new ones, but there is no response.
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
	// A paused process does not handle other signals.
	if err := p.signalAll(syscall.SIGCONT); err != nil {
		return err
	}
	return p.child.wait(ctx, limit)
}

// CrashBackend kills one backend of the server. PostgreSQL then ends the others and recovers as after a crash, without a restart of the
// server.
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
	return signalIfAlive(int(pid), syscall.SIGKILL)
}

// signalAll signals the postmaster first and then its children: a stopped postmaster creates no new ones.
func (p *Postgres) signalAll(signal syscall.Signal) error {
	if err := p.child.signal(signal); err != nil {
		return err
	}
	children, err := childrenOf(p.child.process.Pid)
	if err != nil {
		return fmt.Errorf("list PostgreSQL's processes: %w", err)
	}
	for _, pid := range children {
		if err := signalIfAlive(pid, signal); err != nil {
			return err
		}
	}
	return nil
}
