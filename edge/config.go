package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"deeplink/shared/clientip"
)

// settings is the command line of edge (decisions.md 10). Every setting is a flag and an environment variable; the flag wins.
type settings struct {
	DatabaseURL    databaseURL   `required:"" env:"DATABASE_URL" help:"PostgreSQL to read from, the primary, as a URL."`
	RedisURL       redisURL      `required:"" env:"REDIS_URL" help:"Redis that carries hints, as a URL."`
	LinkBaseURL    linkBaseURL   `required:"" env:"LINK_BASE_URL" help:"What short URLs on the shared host begin with, such as https://go.example.com."`
	Addr           address       `name:"edge-addr" env:"EDGE_ADDR" default:":8080" help:"Where clicks are answered."`
	AdminAddr      address       `name:"edge-admin-addr" env:"EDGE_ADMIN_ADDR" default:"127.0.0.1:9080" help:"Where health, metrics and profiles are. Not for the public."`
	ExtraHosts     []hostName    `name:"edge-extra-hosts" env:"EDGE_EXTRA_HOSTS" help:"More names of the shared host, with commas between."`
	Slot           string        `name:"edge-slot" env:"EDGE_SLOT" help:"Name of this edge among all that run. Default: host name and port."`
	CacheBytes     int64         `name:"edge-cache-bytes" env:"EDGE_CACHE_BYTES" default:"268435456" help:"Memory for links, in bytes."`
	Lease          time.Duration `name:"edge-lease" env:"EDGE_LEASE" default:"2s" help:"How long links are answered from memory after PostgreSQL was asked what has changed."`
	StaleIfError   time.Duration `name:"edge-stale-if-error" env:"EDGE_STALE_IF_ERROR" default:"2m" help:"How much longer while PostgreSQL cannot be reached."`
	Connections    connections   `name:"edge-database-connections" env:"EDGE_DATABASE_CONNECTIONS" default:"16" help:"How many connections to PostgreSQL look up links; one more asks for changes."`
	Drain          time.Duration `name:"edge-drain" env:"EDGE_DRAIN" default:"1s" help:"How long to go on after readiness was given up, so that balancers notice."`
	TrustedProxies proxies       `env:"TRUSTED_PROXIES" help:"Networks whose X-Forwarded-For is believed, as CIDRs with commas between."`
	LogLevel       slog.Level    `env:"LOG_LEVEL" default:"info" help:"Least level to log: debug, info, warn or error."`
	LogFormat      string        `env:"LOG_FORMAT" default:"text" enum:"text,json" help:"How to log: text or json."`
}

// The bounds of settings. A lease must outlast a poll and its delays; the sum of lease and stale-if-error is kept in
// milliseconds in an integer of Postgres.
const (
	minLease, maxLease = 500 * time.Millisecond, time.Minute
	maxStaleIfError    = 24 * time.Hour
	minCacheBytes      = 1 << 20
	maxSlot            = 255
	maxDrain           = time.Minute
)

// Validate implements kong's check of a command.
func (c *settings) Validate() error {
	switch {
	case c.Lease < minLease || c.Lease > maxLease:
		return fmt.Errorf("--edge-lease: must be from %v to %v", minLease, maxLease)
	case c.StaleIfError < 0 || c.StaleIfError > maxStaleIfError:
		return fmt.Errorf("--edge-stale-if-error: must be from 0s to %v", maxStaleIfError)
	case c.CacheBytes < minCacheBytes:
		return fmt.Errorf("--edge-cache-bytes: must be at least %d", minCacheBytes)
	case len(c.Slot) > maxSlot:
		return fmt.Errorf("--edge-slot: must be at most %d bytes", maxSlot)
	case c.Drain < 0 || c.Drain > maxDrain:
		return fmt.Errorf("--edge-drain: must be from 0s to %v", maxDrain)
	}
	return nil
}

// parseSettings reads the command line and the environment. The error says which setting is bad and why. Help goes to stdout,
// after which exit is called.
func parseSettings(args []string, stdout, stderr io.Writer, exit func(int)) (*settings, error) {
	c := new(settings)
	parser, err := kong.New(c,
		kong.Name("edge"),
		kong.Description("The server that answers clicks on short URLs."),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
	)
	if err != nil {
		return nil, err
	}
	_, err = parser.Parse(args)
	return c, err
}

// logger logs to w in the form that the settings ask for.
func (c *settings) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// slot returns the name of this edge: the one that was set, or the host name and the port it listens on.
func (c *settings) slot(listening net.Addr) (string, error) {
	if c.Slot != "" {
		return c.Slot, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this edge (EDGE_SLOT would do): %w", err)
	}
	_, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return "", fmt.Errorf("name this edge (EDGE_SLOT would do): %w", err)
	}
	return net.JoinHostPort(host, port), nil
}

// databaseURL is a connection string that pgx understands.
type databaseURL string

// UnmarshalText implements encoding.TextUnmarshaler. The error never shows the password.
func (u *databaseURL) UnmarshalText(text []byte) error {
	*u = databaseURL(text)
	if _, err := u.config(); err != nil || len(text) == 0 {
		return errors.New("must be a PostgreSQL URL such as postgres://user:password@host:5432/database")
	}
	return nil
}

// config returns how to make one connection. A pool's own settings may be in the URL too; only its parser knows them.
func (u databaseURL) config() (*pgx.ConnConfig, error) {
	pool, err := pgxpool.ParseConfig(string(u))
	if err != nil {
		return nil, err
	}
	return pool.ConnConfig, nil
}

// redisURL is a connection string that go-redis understands.
type redisURL string

// UnmarshalText implements encoding.TextUnmarshaler. The error never shows the password.
func (u *redisURL) UnmarshalText(text []byte) error {
	if _, err := redis.ParseURL(string(text)); err != nil {
		return errors.New("must be a Redis URL such as redis://:password@host:6379/0")
	}
	*u = redisURL(text)
	return nil
}

// linkBaseURL is an origin, without a slash at its end: short URLs are served at the root of a host.
type linkBaseURL string

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *linkBaseURL) UnmarshalText(text []byte) error {
	s := strings.TrimSuffix(string(text), "/")
	parsed, err := url.Parse(s)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" ||
		s != parsed.Scheme+"://"+parsed.Host || s != strings.ToLower(s) {
		return errors.New("must be http:// or https://, a host in lower case and nothing after it")
	}
	*u = linkBaseURL(s)
	return nil
}

// authority returns host and, if there is one, port.
func (u linkBaseURL) authority() string {
	_, authority, _ := strings.Cut(string(u), "://")
	return authority
}

// hostName is a name of the shared host, in lower case, without a port.
type hostName string

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hostName) UnmarshalText(text []byte) error {
	s := strings.ToLower(strings.TrimSuffix(strings.TrimSpace(string(text)), "."))
	if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" {
		return fmt.Errorf("must be host names without ports, not %q", text)
	}
	*h = hostName(s)
	return nil
}

// address is where to listen.
type address string

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *address) UnmarshalText(text []byte) error {
	_, port, err := net.SplitHostPort(string(text))
	if err != nil {
		return fmt.Errorf("must be host:port or :port, not %q", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("must have a port from 0 to 65535, not %q", port)
	}
	*a = address(text)
	return nil
}

// proxies are the networks of trusted proxies.
type proxies struct{ clientip.Proxies }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *proxies) UnmarshalText(text []byte) (err error) {
	p.Proxies, err = clientip.ParseProxies(string(text))
	return err
}

// connections is a number of database connections.
type connections int32

// Validate implements kong's check of a value.
func (c connections) Validate() error {
	if c < 1 || c > 1000 {
		return errors.New("must be from 1 to 1000")
	}
	return nil
}
