package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"deeplink/edge/internal/replica"
	"deeplink/shared/matchtoken"
	"deeplink/shared/settings"
)

// options is the command line of edge (decisions.md 10). Every setting is a flag and an environment variable; the flag wins.
type options struct {
	DatabaseURL    settings.Database    `required:"" env:"DATABASE_URL" help:"PostgreSQL to read from, the primary, as a URL."`
	RedisURL       settings.Redis       `required:"" env:"REDIS_URL" help:"Redis that carries hints, as a URL."`
	LinkBaseURL    settings.LinkBase    `required:"" env:"LINK_BASE_URL" help:"What short URLs on the shared host begin with, such as https://go.example.com."`
	Addr           settings.Address     `name:"edge-addr" env:"EDGE_ADDR" default:":8080" help:"Where clicks are answered."`
	AdminAddr      settings.Address     `name:"edge-admin-addr" env:"EDGE_ADMIN_ADDR" default:"127.0.0.1:9080" help:"Where health, metrics and profiles are. Not for the public."`
	ExtraHosts     []hostName           `name:"edge-extra-hosts" env:"EDGE_EXTRA_HOSTS" help:"More names of the shared host, with commas between."`
	Slot           string               `name:"edge-slot" env:"EDGE_SLOT" help:"Name of this edge among all that run. Default: host name and port."`
	Advertise      string               `name:"edge-advertise" env:"EDGE_ADVERTISE" help:"Host and port at which control reaches this edge itself, past any balancer. Default: where it listens or, when that is everywhere, from where it reaches PostgreSQL."`
	CacheBytes     int64                `name:"edge-cache-bytes" env:"EDGE_CACHE_BYTES" default:"268435456" help:"Memory for links, in bytes."`
	Lease          time.Duration        `name:"edge-lease" env:"EDGE_LEASE" default:"2s" help:"How long links are answered from memory after PostgreSQL was asked what has changed."`
	StaleIfError   time.Duration        `name:"edge-stale-if-error" env:"EDGE_STALE_IF_ERROR" default:"2m" help:"How much longer while PostgreSQL cannot be reached."`
	Connections    settings.Connections `name:"edge-database-connections" env:"EDGE_DATABASE_CONNECTIONS" default:"16" help:"How many connections to PostgreSQL look up links and association files; one more asks for changes, and 4 redeem match tokens."`
	Drain          time.Duration        `name:"edge-drain" env:"EDGE_DRAIN" default:"1s" help:"How long to go on after readiness was given up, so that balancers notice."`
	MatchTokenKeys matchTokenKeys       `env:"MATCH_TOKEN_KEYS" help:"Keys of match tokens, 64 hex digits each, with commas between: the first signs, all verify. Without one there are no tokens."`
	TrustedProxies settings.Proxies     `env:"TRUSTED_PROXIES" help:"Networks whose X-Forwarded-For is believed, as CIDRs with commas between."`
	settings.Log
}

// The bounds of settings. A lease must outlast a poll and its delays; both together must stay well below the ten
// minutes for which control remembers what was deleted.
const (
	minLease, maxLease = 500 * time.Millisecond, time.Minute
	maxStaleIfError    = 5 * time.Minute
	minCacheBytes      = 1 << 20
	maxSlot            = 255
	maxDrain           = time.Minute
)

// Validate implements kong's check of a command.
func (c *options) Validate() error {
	for _, err := range []error{
		c.DatabaseURL.Check(), c.RedisURL.Check(), c.Connections.Check("edge-database-connections", "EDGE_DATABASE_CONNECTIONS"),
		c.MatchTokenKeys.Check(),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case c.Lease < minLease || c.Lease > maxLease:
		return fmt.Errorf("--edge-lease: must be from %v to %v", minLease, maxLease)
	case c.StaleIfError < 0 || c.StaleIfError > maxStaleIfError:
		return fmt.Errorf("--edge-stale-if-error: must be from 0s to %v", maxStaleIfError)
	case c.CacheBytes < minCacheBytes:
		return fmt.Errorf("--edge-cache-bytes: must be at least %d", minCacheBytes)
	case len(c.Slot) > maxSlot:
		return fmt.Errorf("--edge-slot: must be at most %d bytes", maxSlot)
	case c.Advertise != "" && !replica.ValidAddress(c.Advertise):
		return errors.New("--edge-advertise: must be a host, which may be an address, and a port from 1 to 65535")
	case c.Drain < 0 || c.Drain > maxDrain:
		return fmt.Errorf("--edge-drain: must be from 0s to %v", maxDrain)
	}
	return nil
}

// parseSettings reads the command line and the environment. The error says which setting is bad and why. Help goes to stdout,
// after which exit is called.
func parseSettings(args []string, stdout, stderr io.Writer, exit func(int)) (*options, error) {
	c := new(options)
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

// slot returns the name of this edge: the one that was set, or the host name and the port it listens on.
func (c *options) slot(listening net.Addr) (string, error) {
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

// address returns where control reaches this edge, as [replica.Options] has it: where it was set, or where this edge listens.
func (c *options) address(listening net.Addr) string {
	at, err := netip.ParseAddrPort(listening.String())
	switch {
	case c.Advertise != "":
		return c.Advertise
	case err != nil:
		return ""
	case at.Addr().IsUnspecified():
		return fmt.Sprintf(":%d", at.Port())
	}
	return at.String()
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

// matchTokenKeys are secrets. They have no UnmarshalText for the reason that [settings.Database] has none.
type matchTokenKeys string

// Check returns what is wrong with the keys. To have none is well.
func (k matchTokenKeys) Check() error {
	if _, err := matchtoken.ParseKeys(string(k)); err != nil && k != "" {
		return fmt.Errorf("--match-token-keys ($MATCH_TOKEN_KEYS): %w", err)
	}
	return nil
}

// keys returns nil when there are none, or such as Check refuses.
func (k matchTokenKeys) keys() *matchtoken.Keys {
	keys, _ := matchtoken.ParseKeys(string(k))
	return keys
}
