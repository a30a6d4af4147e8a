// Package settings holds the settings that control and edge have in common, as types that say what is wrong with a value, and
// never repeat one that may hold a password. They are read by kong from flags and the environment.
package settings

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/clientip"
	"deeplink/shared/redisurl"
)

// Log says how a program logs. It is to be embedded in a command line.
type Log struct {
	LogLevel  slog.Level `env:"LOG_LEVEL" default:"info" help:"Least level to log: debug, info, warn or error."`
	LogFormat string     `env:"LOG_FORMAT" default:"text" enum:"text,json" help:"How to log: text or json."`
}

// Logger logs to w in the form that the settings ask for, and what goes wrong again and again not each time.
func (l Log) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.LogLevel}
	if l.LogFormat == "json" {
		return slog.New(newSparing(slog.NewJSONHandler(w, options)))
	}
	return slog.New(newSparing(slog.NewTextHandler(w, options)))
}

// Database and Redis are connection strings. They have no UnmarshalText, and have to be checked by the Validate of the struct
// around them: kong repeats in its error what it could not unmarshal, and there is a password in it.
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

// Config returns how to make one connection. A pool's own settings may be in the URL too; only its parser knows them.
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

// LinkBase is an origin, without a slash at its end: short URLs are served at the root of a host.
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

// Authority returns host and, if there is one, port.
func (b LinkBase) Authority() string {
	_, authority, _ := strings.Cut(string(b), "://")
	return authority
}

// Address is where to listen.
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

// Check returns what is wrong with the number that the flag and the variable set.
func (c Connections) Check(flag, variable string) error {
	if c < 1 || c > 1000 {
		return fmt.Errorf("--%s ($%s) must be from 1 to 1000", flag, variable)
	}
	return nil
}
