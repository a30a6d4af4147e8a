// Package settings holds the types of the settings that control and edge share. Each type validates its value; no error repeats a value
// that may contain a password. kong reads the settings from flags and the environment.
package settings

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/clientip"
	"deeplink/shared/redisurl"
)

// Log holds the logging settings. Embed it in a command line struct.
type Log struct {
	LogLevel  slog.Level `env:"LOG_LEVEL" default:"info" help:"Lowest level to log: debug, info, warn or error."`
	LogFormat string     `env:"LOG_FORMAT" default:"text" enum:"text,json" help:"Log format: text or json."`
}

// Logger returns a logger that writes to w in the configured format and limits the rate of repeated warnings and errors.
func (l Log) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.LogLevel}
	if l.LogFormat == "json" {
		return slog.New(newRateLimitedHandler(slog.NewJSONHandler(w, options)))
	}
	return slog.New(newRateLimitedHandler(slog.NewTextHandler(w, options)))
}

// Database and Redis are connection strings. They have no UnmarshalText: kong's error would repeat the value, which contains a password.
// The Validate method of the enclosing struct must call Check.
type (
	Database string
	Redis    string
)

// Check returns what is wrong with a connection string of Postgres.
func (d Database) Check() error {
	if _, err := d.Config(); err != nil || d == "" {
		return errors.New("--database-url ($DATABASE_URL) must be a PostgreSQL URL such as postgres://user:password@host:5432/database")
	}
	return nil
}

// Config returns the configuration of a single connection. The URL may also contain settings of a pool, which only the pool's parser
// accepts.
func (d Database) Config() (*pgx.ConnConfig, error) {
	pool, err := pgxpool.ParseConfig(string(d))
	if err != nil {
		return nil, err
	}
	return pool.ConnConfig, nil
}

// Check returns what is wrong with a connection string of Redis.
func (r Redis) Check() error {
	if _, err := redisurl.Parse(string(r)); err != nil {
		return errors.New("--redis-url ($REDIS_URL) must be one of " + redisurl.Forms)
	}
	return nil
}

// LinkBase is an origin without a trailing slash: short URLs are served at the root of a host.
type LinkBase string

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *LinkBase) UnmarshalText(text []byte) error {
	s := strings.TrimSuffix(string(text), "/")
	parsed, err := url.Parse(s)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" ||
		s != parsed.Scheme+"://"+parsed.Host || s != strings.ToLower(s) {
		return errors.New("must be http:// or https://, a host in lower case and nothing after it")
	}
	*b = LinkBase(s)
	return nil
}

// Authority returns the host, with the port if there is one.
func (b LinkBase) Authority() string {
	_, authority, _ := strings.Cut(string(b), "://")
	return authority
}

// HostName is a name of the shared host in addition to that of LINK_BASE_URL: in lower case, without port and trailing dot.
type HostName string

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *HostName) UnmarshalText(text []byte) error {
	s := strings.ToLower(strings.TrimSuffix(strings.TrimSpace(string(text)), "."))
	if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" {
		return fmt.Errorf("must be host names without ports, not %q", text)
	}
	*h = HostName(s)
	return nil
}

// Origin is an origin exactly as a browser sends it in the header Origin (RFC 6454, section 6.2): scheme, host in lower case, and the port
// unless it is the default of the scheme.
type Origin string

// originHost matches a host name; the other form of a host is an IPv6 address in brackets.
var originHost = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`)

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Origin) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	parsed, err := url.Parse(s)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || s != parsed.Scheme+"://"+parsed.Host ||
		!isOriginHost(parsed.Hostname()) || !isOriginPort(parsed) {
		return fmt.Errorf("must be origins such as https://shop.example.com, without a path and without the default port, not %q", text)
	}
	*o = Origin(s)
	return nil
}

func isOriginHost(host string) bool {
	address, err := netip.ParseAddr(host)
	return originHost.MatchString(host) || err == nil && address.Is6() && address.Zone() == "" && address.String() == host
}

func isOriginPort(origin *url.URL) bool {
	port := origin.Port()
	if port == "" {
		return !strings.HasSuffix(origin.Host, ":")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	return err == nil && strconv.FormatUint(number, 10) == port && port != map[string]string{"http": "80", "https": "443"}[origin.Scheme]
}

// Address is the host and port to listen on.
type Address string

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Address) UnmarshalText(text []byte) error {
	_, port, err := net.SplitHostPort(string(text))
	if err != nil {
		return fmt.Errorf("must be host:port or :port, not %q", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("must have a port from 0 to 65535, not %q", port)
	}
	*a = Address(text)
	return nil
}

// Proxies are the networks of trusted proxies.
type Proxies struct{ clientip.Proxies }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Proxies) UnmarshalText(text []byte) (err error) {
	p.Proxies, err = clientip.ParseProxies(string(text))
	return err
}

// Connections is a number of database connections.
type Connections int32

// Check validates the number. flag and variable name the setting in the error.
func (c Connections) Check(flag, variable string) error {
	if c < 1 || c > 1000 {
		return fmt.Errorf("--%s ($%s) must be from 1 to 1000", flag, variable)
	}
	return nil
}
