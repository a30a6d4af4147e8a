package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"deeplink/shared/clientip"
)

// command is the command line of control (decisions.md 10). Every setting is a flag and an environment variable; the flag
// wins.
type command struct {
	DatabaseURL databaseURL `required:"" env:"DATABASE_URL" placeholder:"$$DATABASE_URL" help:"PostgreSQL to use, as a URL."`
	LogLevel    slog.Level  `env:"LOG_LEVEL" default:"info" help:"Least level to log: debug, info, warn or error."`
	LogFormat   string      `env:"LOG_FORMAT" default:"text" enum:"text,json" help:"How to log: text or json."`

	Serve   serveCommand   `cmd:"" default:"withargs" help:"Serve the API. This is the default."`
	Migrate migrateCommand `cmd:"" help:"Bring the database up to date."`
	Org     struct {
		Create    orgCreateCommand    `cmd:"" help:"Make an organization, with keys when its plan has them."`
		List      orgListCommand      `cmd:"" help:"List all organizations."`
		Suspend   orgSuspendCommand   `cmd:"" help:"Suspend an organization: no key works and no link resolves."`
		Resume    orgResumeCommand    `cmd:"" help:"End a suspension."`
		Plan      orgPlanCommand      `cmd:"" help:"Set an organization's plan, or none."`
		AppConfig orgAppConfigCommand `cmd:"" help:"Set an organization's app config, or none."`
	} `cmd:"" help:"Organizations."`
	Key struct {
		Regenerate keyRegenerateCommand `cmd:"" help:"Replace an API key at once. Prints the new one: it is shown nowhere else."`
	} `cmd:"" help:"API keys."`
	Domain struct {
		Add domainAddCommand `cmd:"" help:"Add a custom domain to an organization."`
	} `cmd:"" help:"Custom domains."`
}

// spread are the settings of the commands that change what edges serve.
type spread struct {
	RedisURL    redisURL    `required:"" env:"REDIS_URL" placeholder:"$$REDIS_URL" help:"Redis that carries hints and counts requests, as a URL."`
	LinkBaseURL linkBaseURL `required:"" env:"LINK_BASE_URL" placeholder:"$$LINK_BASE_URL" help:"What short URLs on the shared host begin with, such as https://go.example.com."`
}

// serveCommand are the settings of control serve.
type serveCommand struct {
	spread
	Addr           address       `name:"control-addr" env:"CONTROL_ADDR" default:":8081" help:"Where the API listens."`
	AdminAddr      address       `name:"control-admin-addr" env:"CONTROL_ADMIN_ADDR" default:"127.0.0.1:9081" help:"Where health, metrics and profiles are. Not for the public."`
	TrustedProxies proxies       `env:"TRUSTED_PROXIES" help:"Networks whose X-Forwarded-For is believed, as CIDRs with commas between."`
	Connections    int32         `name:"control-database-connections" env:"CONTROL_DATABASE_CONNECTIONS" default:"16" help:"How many connections to PostgreSQL answer requests; 3 more do the rest."`
	Drain          time.Duration `name:"control-drain" env:"CONTROL_DRAIN" default:"1s" help:"How long to go on after readiness was given up, so that balancers notice."`
}

// parseCommand reads the command line and the environment. The error says which setting is bad and why. Help goes to stdout, after
// which exit is called.
func parseCommand(args []string, stdout, stderr io.Writer, exit func(int)) (*command, *kong.Context, error) {
	c := new(command)
	parser, err := kong.New(c,
		kong.Name("control"),
		kong.Description("The API that edits deep links, and the commands of its operators."),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
	)
	if err != nil {
		return nil, nil, err
	}
	selected, err := parser.Parse(args)
	return c, selected, err
}

// logger logs to w in the form that the settings ask for.
func (c *command) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// databaseURL is a connection string that pgx understands, redisURL one that go-redis understands. They are checked by the
// Validate of the structs around them, not by an UnmarshalText: kong repeats in its error what it could not unmarshal, and
// there is a password in it.
type (
	databaseURL string
	redisURL    string
)

// Validate implements kong's check of a command line.
func (c *command) Validate() error {
	if _, err := pgxpool.ParseConfig(string(c.DatabaseURL)); err != nil || c.DatabaseURL == "" {
		return errors.New("--database-url ($DATABASE_URL) must be a PostgreSQL URL such as postgres://user:password@host:5432/database")
	}
	return nil
}

// Validate implements kong's check of a command, for all that embed it.
func (s *spread) Validate() error {
	if _, err := redis.ParseURL(string(s.RedisURL)); err != nil {
		return errors.New("--redis-url ($REDIS_URL) must be a Redis URL such as redis://:password@host:6379/0")
	}
	return nil
}

// Validate implements kong's check of a command.
func (c *serveCommand) Validate() error {
	if c.Connections < 1 || c.Connections > 1000 {
		return errors.New("--control-database-connections ($CONTROL_DATABASE_CONNECTIONS) must be from 1 to 1000")
	}
	if c.Drain < 0 || c.Drain > time.Minute {
		return errors.New("--control-drain ($CONTROL_DRAIN) must be from 0s to 1m")
	}
	return c.spread.Validate()
}

// linkBaseURL is an origin, without a slash at its end: edges serve short URLs at the root of a host.
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
