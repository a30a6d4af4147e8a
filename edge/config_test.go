package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// parse parses a command line with the required settings and these arguments.
func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	required := []string{"--database-url", "postgres://u:secret@127.0.0.1:1/d", "--redis-url", "redis://:secret@127.0.0.1:1", "--link-base-url", base}
	return parseSettings(append(required, args...), io.Discard, io.Discard, func(int) { t.Fatal("exited") })
}

func TestDefaultSettings(t *testing.T) {
	t.Parallel()
	c, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if c.Addr != ":8080" || c.AdminAddr != "127.0.0.1:9080" || c.Lease != 2*time.Second || c.StaleIfError != 2*time.Minute ||
		c.CacheBytes != 0 || c.MaxConnections != 0 || c.MaxConnectionsPerIP != 0 || c.RateLimitAddresses != 0 || c.Drain != time.Second || len(c.TrustedProxies.Proxies) != 0 || len(c.ExtraHosts) != 0 {
		t.Errorf("defaults %+v", c)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if slot, err := c.slot(&net.TCPAddr{IP: net.IPv6zero, Port: 8123}); err != nil || slot != host+":8123" {
		t.Errorf("slot %q, %v; expected %s:8123", slot, err, host)
	}
}

func TestSettingsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		good bool
	}{
		{[]string{"--edge-lease", "500ms"}, true},
		{[]string{"--edge-lease", "499ms"}, false},
		{[]string{"--edge-lease", "61s"}, false},
		{[]string{"--edge-lease", "2"}, false},
		{[]string{"--edge-stale-if-error", "0s"}, true},
		{[]string{"--edge-stale-if-error=-1s"}, false},
		{[]string{"--edge-stale-if-error", "5m"}, true},
		{[]string{"--edge-stale-if-error", "301s"}, false},
		{[]string{"--edge-cache-bytes", "1048576"}, true},
		{[]string{"--edge-cache-bytes", "1048575"}, false},
		{[]string{"--edge-cache-bytes", "0"}, true},
		{[]string{"--edge-cache-bytes=-1"}, false},
		{[]string{"--edge-max-connections", "1"}, true},
		{[]string{"--edge-max-connections=-1"}, false},
		{[]string{"--edge-max-connections", "16777217"}, false},
		{[]string{"--edge-max-connections-per-ip", "1"}, true},
		{[]string{"--edge-max-connections-per-ip=-1"}, false},
		{[]string{"--edge-max-connections-per-ip", "16777217"}, false},
		{[]string{"--edge-rate-limit-addresses", "1"}, true},
		{[]string{"--edge-rate-limit-addresses=-1"}, false},
		{[]string{"--edge-rate-limit-addresses", "16777217"}, false},
		{[]string{"--edge-slot", strings.Repeat("a", 255)}, true},
		{[]string{"--edge-slot", strings.Repeat("a", 256)}, false},
		{[]string{"--edge-advertise", "edge-1.internal:8080"}, true},
		{[]string{"--edge-advertise", "[fd00::1]:65535"}, true},
		{[]string{"--edge-advertise", ":8080"}, false},
		{[]string{"--edge-advertise", "edge-1.internal"}, false},
		{[]string{"--edge-advertise", "edge-1.internal:0"}, false},
		{[]string{"--edge-advertise", "edge-1.internal:65536"}, false},
		{[]string{"--edge-advertise", "http://edge-1.internal:80"}, false},
		{[]string{"--edge-advertise", strings.Repeat("a", 260) + ":1"}, false},
		{[]string{"--match-token-keys", tokenKey}, true},
		{[]string{"--match-token-keys", tokenKey + ", " + strings.ToUpper(retiredKey)}, true},
		{[]string{"--match-token-keys", ""}, true},
		{[]string{"--match-token-keys", "secret"}, false},
		{[]string{"--match-token-keys", tokenKey[:58] + "secret"}, false},
		{[]string{"--match-token-keys", tokenKey + ","}, false},
		{[]string{"--edge-drain", "0s"}, true},
		{[]string{"--edge-drain", "61s"}, false},
		{[]string{"--edge-drain=-1s"}, false},
		{[]string{"--edge-addr", "127.0.0.1:0"}, true},
		{[]string{"--edge-addr", "127.0.0.1"}, false},
		{[]string{"--edge-addr", ":65536"}, false},
		{[]string{"--edge-admin-addr", "[::1]:9"}, true},
		{[]string{"--edge-admin-addr", "9"}, false},
		{[]string{"--edge-extra-hosts", "a.example,B.example."}, true},
		{[]string{"--edge-extra-hosts", ""}, true},
		{[]string{"--edge-extra-hosts", "a.example:80"}, false},
		{[]string{"--edge-extra-hosts", "https://a.example"}, false},
		{[]string{"--edge-database-connections", "0"}, false},
		{[]string{"--edge-database-connections", "1000"}, true},
		{[]string{"--trusted-proxies", "10.0.0.0/8,::1"}, true},
		{[]string{"--trusted-proxies", "10.0.0.0/33"}, false},
		{[]string{"--log-level", "debug"}, true},
		{[]string{"--log-level", "loud"}, false},
		{[]string{"--log-format", "json"}, true},
		{[]string{"--log-format", "xml"}, false},
		{[]string{"--link-base-url", "https://go.example.com/"}, true},
		{[]string{"--link-base-url", "http://127.0.0.1:8080"}, true},
		{[]string{"--link-base-url", "https://go.example.com/l"}, false},
		{[]string{"--link-base-url", "https://me@go.example.com"}, false},
		{[]string{"--link-base-url", "https://Go.example.com"}, false},
		{[]string{"--link-base-url", "go.example.com"}, false},
		{[]string{"--link-base-url", "ftp://go.example.com"}, false},
		{[]string{"--database-url", ""}, false},
		{[]string{"--database-url", "mysql://u:secret@h/d"}, false},
		{[]string{"--redis-url", "http://:secret@h"}, false},
		{[]string{"--redis-url", "redis+sentinel://:secret@a:1,b:2"}, false}, // no master_name
		{[]string{"--redis-url", "redis+sentinel://:secret@a:1,b:2?master_name=m&password=secret"}, true},
		{[]string{"--redis-url", "redis+cluster://:secret@a:1,b:2"}, true},
		{[]string{"--redis-url", "redis://:secret@a:1,b:2"}, false},
		{[]string{"--nonsense"}, false},
	} {
		_, err := parse(t, test.args...)
		if (err == nil) != test.good {
			t.Errorf("%q: error %v, expected one: %v", test.args, err, !test.good)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows a password: %v", test.args, err)
		}
	}
}

func TestSettingsAreReadFromTheEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"DATABASE_URL": "postgres://h/d", "REDIS_URL": "redis://h", "LINK_BASE_URL": base, "EDGE_ADDR": ":1", "EDGE_ADMIN_ADDR": ":2",
		"EDGE_EXTRA_HOSTS": "a.example,b.example", "EDGE_SLOT": "s", "EDGE_ADVERTISE": "h:1", "EDGE_CACHE_BYTES": "2000000", "EDGE_MAX_CONNECTIONS": "5000",
		"EDGE_MAX_CONNECTIONS_PER_IP": "50", "EDGE_RATE_LIMIT_ADDRESSES": "6000", "EDGE_LEASE": "3s", "EDGE_STALE_IF_ERROR": "4s",
		"EDGE_DATABASE_CONNECTIONS": "5", "EDGE_DRAIN": "6s", "TRUSTED_PROXIES": "127.0.0.1", "LOG_LEVEL": "warn", "LOG_FORMAT": "json",
		"MATCH_TOKEN_KEYS": tokenKey,
	} {
		t.Setenv(name, value)
	}
	c, err := parseSettings([]string{"--edge-drain", "7s"}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if c.DatabaseURL != "postgres://h/d" || c.RedisURL != "redis://h" || c.LinkBaseURL != base || c.Addr != ":1" || c.AdminAddr != ":2" ||
		len(c.ExtraHosts) != 2 || c.ExtraHosts[1] != "b.example" || c.Slot != "s" || c.Advertise != "h:1" || c.CacheBytes != 2000000 || c.MaxConnections != 5000 || c.MaxConnectionsPerIP != 50 || c.RateLimitAddresses != 6000 || c.Lease != 3*time.Second ||
		c.StaleIfError != 4*time.Second || c.Connections != 5 || c.Drain != 7*time.Second || len(c.TrustedProxies.Proxies) != 1 ||
		c.MatchTokenKeys != tokenKey || c.LogLevel.String() != "WARN" || c.LogFormat != "json" {
		t.Errorf("settings %+v", c)
	}
	var out bytes.Buffer
	c.Logger(&out).Warn("here")
	if !strings.HasPrefix(out.String(), `{"time":`) {
		t.Errorf("logged %q, expected JSON", out.String())
	}
}

// kong prints a bad value from the environment. So kong must not be the one that detects it.
func TestBadSettingInTheEnvironmentShowsNoPassword(t *testing.T) {
	for name, value := range map[string]string{
		"DATABASE_URL": "mysql://u:secret@h/d", "REDIS_URL": "http://:secret@h", "EDGE_DATABASE_CONNECTIONS": "0",
		"MATCH_TOKEN_KEYS": tokenKey[:58] + "secret",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DATABASE_URL", "postgres://u:secret@h/d")
			t.Setenv("REDIS_URL", "redis://:secret@h")
			t.Setenv("LINK_BASE_URL", base)
			t.Setenv(name, value)
			_, err := parseSettings(nil, io.Discard, io.Discard, func(int) {})
			if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s=%s: %v; expected an error that names the variable and shows no password", name, value, err)
			}
		})
	}
}
