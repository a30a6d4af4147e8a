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

	"deeplink/edge/internal/matchtoken"
	"deeplink/edge/internal/replica"
	"deeplink/shared/settings"
)

// options are the settings of edge. Each is a flag and an environment variable; the flag wins.
type options struct {
	DatabaseURL         settings.Database    `required:"" env:"DATABASE_URL" help:"URL of the PostgreSQL primary."`
	RedisURL            settings.Redis       `required:"" env:"REDIS_URL" help:"URL of the Redis that carries hints and counts POST /match."`
	LinkBaseURL         settings.LinkBase    `required:"" env:"LINK_BASE_URL" help:"Start of short URLs on the shared host, such as https://go.example.com."`
	Addr                settings.Address     `name:"edge-addr" env:"EDGE_ADDR" default:":8080" help:"Public address, which serves clicks."`
	AdminAddr           settings.Address     `name:"edge-admin-addr" env:"EDGE_ADMIN_ADDR" default:"127.0.0.1:9080" help:"Address of health checks, metrics and profiles. Keep it private."`
	ExtraHosts          []settings.HostName  `name:"edge-extra-hosts" env:"EDGE_EXTRA_HOSTS" help:"Further names of the shared host, separated by commas. Give control the same list."`
	Slot                string               `name:"edge-slot" env:"EDGE_SLOT" help:"Unique name of this edge. Default: host name and port."`
	Advertise           string               `name:"edge-advertise" env:"EDGE_ADVERTISE" help:"Host and port at which control reaches this edge directly, not through a load balancer. Default: the address that it listens on or, if it listens on all, the one from which it connects to PostgreSQL."`
	CacheBytes          int64                `name:"edge-cache-bytes" env:"EDGE_CACHE_BYTES" default:"0" help:"Memory for cached links, in bytes. 0: a quarter of the memory, at most 256 MiB."`
	MaxConnections      int                  `name:"edge-max-connections" env:"EDGE_MAX_CONNECTIONS" default:"0" help:"Maximum number of client connections. 0: as many as the memory and the limit of open files allow, at most 262144."`
	MaxConnectionsPerIP int                  `name:"edge-max-connections-per-ip" env:"EDGE_MAX_CONNECTIONS_PER_IP" default:"0" help:"Maximum number of connections from one IPv4 address or IPv6 /64 outside TRUSTED_PROXIES. 0: a sixteenth of EDGE_MAX_CONNECTIONS."`
	RateLimitAddresses  int                  `name:"edge-rate-limit-addresses" env:"EDGE_RATE_LIMIT_ADDRESSES" default:"0" help:"Maximum number of client addresses that the rate limit tracks at a time. 0: one per 16 KiB of memory, 4096 to 262144."`
	Lease               time.Duration        `name:"edge-lease" env:"EDGE_LEASE" default:"2s" help:"How long after the start of a poll of PostgreSQL the edge may serve from its cache."`
	StaleIfError        time.Duration        `name:"edge-stale-if-error" env:"EDGE_STALE_IF_ERROR" default:"2m" help:"How much longer the edge may serve from its cache while PostgreSQL cannot be reached."`
	Connections         settings.Connections `name:"edge-database-connections" env:"EDGE_DATABASE_CONNECTIONS" default:"16" help:"Number of connections to PostgreSQL for links and association files. One more polls for changes, and 4 redeem match tokens."`
	Drain               time.Duration        `name:"edge-drain" env:"EDGE_DRAIN" default:"1s" help:"How long to keep serving after /readyz fails, so load balancers can drain."`
	MatchTokenKeys      matchTokenKeys       `env:"MATCH_TOKEN_KEYS" help:"Keys of match tokens, 64 hex digits each, separated by commas: the first signs, all verify. Without a key there are no match tokens."`
	Clicks              string               `name:"edge-clicks" env:"EDGE_CLICKS" default:"on" enum:"on,off" help:"Whether to record clicks: on or off."`
	ClicksDir           string               `name:"edge-clicks-dir" env:"EDGE_CLICKS_DIR" help:"Directory of the log of clicks, for this edge only. Without it the log is in memory, and a crash loses up to a second of clicks."`
	ClicksBytes         int64                `name:"edge-clicks-bytes" env:"EDGE_CLICKS_BYTES" default:"2147483648" help:"Disk space for clicks that PostgreSQL does not have yet, in bytes."`
	ClicksSync          time.Duration        `name:"edge-clicks-sync" env:"EDGE_CLICKS_SYNC" default:"1s" help:"How often to make recorded clicks safe against power loss."`
	CountryHeader       string               `name:"edge-country-header" env:"EDGE_COUNTRY_HEADER" help:"Header in which a proxy of TRUSTED_PROXIES names the country of the client."`
	GeoIPFile           string               `name:"edge-geoip-file" env:"EDGE_GEOIP_FILE" help:"Database of countries in MaxMind's format. The edge reloads it when it changes."`
	TrustedProxies      settings.Proxies     `env:"TRUSTED_PROXIES" help:"Networks whose X-Forwarded-For header is trusted, as CIDRs separated by commas."`
	settings.Log
}

// The bounds of the settings. A lease must outlast a poll and its delays. Lease and StaleIfError together must stay well below the ten
// minutes for which control keeps the list of changes.
const (
	minLease, maxLease = 500 * time.Millisecond, time.Minute
	maxStaleIfError    = 5 * time.Minute
	minCacheBytes      = 1 << 20
	// maxBound is the maximum of the settings that bound a number.
	maxBound = 1 << 24
	maxSlot  = 255
	maxDrain = time.Minute

	minClicksBytes, maxClicksBytes = 16 << 20, 1 << 40
	minClicksSync, maxClicksSync   = 100 * time.Millisecond, time.Minute
)

// Validate is called by kong after parsing.
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
	case c.CacheBytes != 0 && c.CacheBytes < minCacheBytes:
		return fmt.Errorf("--edge-cache-bytes: must be 0 or at least %d", minCacheBytes)
	case c.MaxConnections < 0 || c.MaxConnections > maxBound:
		return fmt.Errorf("--edge-max-connections: must be from 0 to %d", maxBound)
	case c.MaxConnectionsPerIP < 0 || c.MaxConnectionsPerIP > maxBound:
		return fmt.Errorf("--edge-max-connections-per-ip: must be from 0 to %d", maxBound)
	case c.RateLimitAddresses < 0 || c.RateLimitAddresses > maxBound:
		return fmt.Errorf("--edge-rate-limit-addresses: must be from 0 to %d", maxBound)
	case c.ClicksBytes < minClicksBytes || c.ClicksBytes > maxClicksBytes:
		return fmt.Errorf("--edge-clicks-bytes: must be from %d to %d", minClicksBytes, maxClicksBytes)
	case c.ClicksSync < minClicksSync || c.ClicksSync > maxClicksSync:
		return fmt.Errorf("--edge-clicks-sync: must be from %v to %v", minClicksSync, maxClicksSync)
	case c.CountryHeader != "" && !isHeaderName(c.CountryHeader):
		return errors.New("--edge-country-header: must be the name of a header")
	case len(c.Slot) > maxSlot:
		return fmt.Errorf("--edge-slot: must be at most %d bytes", maxSlot)
	case c.Advertise != "" && !replica.ValidAddress(c.Advertise):
		return errors.New("--edge-advertise: must be a host name or IP address, a colon and a port from 1 to 65535")
	case c.Drain < 0 || c.Drain > maxDrain:
		return fmt.Errorf("--edge-drain: must be from 0s to %v", maxDrain)
	}
	return nil
}

// isHeaderName reports whether a text is a token (RFC 9110, section 5.6.2).
func isHeaderName(text string) bool {
	return strings.Trim(text, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// parseSettings reads the command line and the environment. An error names the bad setting. For --help it writes the help to stdout and
// calls exit.
func parseSettings(args []string, stdout, stderr io.Writer, exit func(int)) (*options, error) {
	c := new(options)
	parser, err := kong.New(c,
		kong.Name("edge"),
		kong.Description("Serves clicks on short URLs."),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
	)
	if err != nil {
		return nil, err
	}
	_, err = parser.Parse(args)
	return c, err
}

// slot returns the unique name of this edge: the configured one, or the host name and the port that it listens on.
func (c *options) slot(listening net.Addr) (string, error) {
	if c.Slot != "" {
		return c.Slot, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("no name for this edge, set EDGE_SLOT: %w", err)
	}
	_, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return "", fmt.Errorf("no name for this edge, set EDGE_SLOT: %w", err)
	}
	return net.JoinHostPort(host, port), nil
}

// address returns the address at which control reaches this edge, in the form of [replica.Options]: the configured one, or the one that
// the edge listens on.
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

// matchTokenKeys is a secret. It has no UnmarshalText, for the same reason as [settings.Database]: kong would print a bad value.
type matchTokenKeys string

// Check returns what is wrong with the keys. An empty list is valid: pages then carry no match token.
func (k matchTokenKeys) Check() error {
	if _, err := matchtoken.ParseKeys(string(k)); err != nil && k != "" {
		return fmt.Errorf("--match-token-keys ($MATCH_TOKEN_KEYS): %w", err)
	}
	return nil
}

// keys returns nil if there are none or they are not valid.
func (k matchTokenKeys) keys() *matchtoken.Keys {
	keys, _ := matchtoken.ParseKeys(string(k))
	return keys
}
