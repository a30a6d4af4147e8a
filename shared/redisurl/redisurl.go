// Package redisurl opens a Redis by URL: one server, the primary of a set of Sentinels, or a Cluster. Callers use the client in the same
// way for each.
package redisurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Forms describes the URLs that Parse accepts, for error messages.
const Forms = "redis://:password@host:6379/0, redis+sentinel://a:26379,b:26379/0?master_name=NAME&password=password or " +
	"redis+cluster://:password@a:6379,b:6379; rediss for TLS"

const (
	sentinelPort = "26379"
	serverPort   = "6379"
)

// Address is a parsed URL.
type Address struct {
	// One of the three is set.
	server   *redis.Options
	sentinel *redis.FailoverOptions
	cluster  *redis.ClusterOptions
}

// Parse reads a URL with the parameters of go-redis, except those that allow reads from replicas. Errors may repeat the URL, which may
// contain a password.
func Parse(address string) (a Address, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	plain, kind, _ := strings.Cut(scheme, "+")
	switch kind {
	case "":
		if a.server, err = redis.ParseURL(address); err == nil && strings.Contains(a.server.Addr, ",") {
			err = errors.New("redis:// names one server; see redis+sentinel:// and redis+cluster:// for several")
		}
	case "sentinel":
		a.sentinel, err = parseSentinel(plain, rest)
	case "cluster":
		a.cluster, err = parseCluster(plain, rest)
	default:
		err = fmt.Errorf("unknown kind of Redis: %q", kind)
	}
	return a, err
}

func parseSentinel(scheme, rest string) (*redis.FailoverOptions, error) {
	address, err := listed(scheme, rest, sentinelPort)
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseFailoverURL(address)
	if err != nil {
		return nil, err
	}
	if o.MasterName == "" {
		return nil, errors.New("redis+sentinel:// needs master_name, the name under which the Sentinels know the primary")
	}
	if o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly || o.UseDisconnectedReplicas {
		return nil, errors.New("redis+sentinel:// uses the primary only; remove the parameters that read from replicas")
	}
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each server's certificate has its own
	}
	return o, nil
}

func parseCluster(scheme, rest string) (*redis.ClusterOptions, error) {
	address, err := listed(scheme, rest, serverPort)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Path != "" && u.Path != "/" && u.Path != "/0" {
		return nil, errors.New("redis+cluster:// has database 0 only; remove the path")
	}
	o, err := redis.ParseClusterURL(address)
	if err != nil {
		return nil, err
	}
	if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
		return nil, errors.New("redis+cluster:// uses primaries only; remove the parameters that read from replicas")
	}
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = ""
	}
	return o, nil
}

// listed converts a comma-separated list of servers in rest to the form of go-redis: the first server as the host of the URL, the others as
// parameters.
func listed(scheme, rest, port string) (string, error) {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	user, servers := "", rest[:end]
	if at := strings.LastIndexByte(servers, '@'); at >= 0 {
		user, servers = servers[:at+1], servers[at+1:]
	}
	all := strings.Split(servers, ",")
	for i, server := range all {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			host = strings.Trim(server, "[]")
			all[i] = net.JoinHostPort(host, port)
		}
		if host == "" {
			return "", errors.New("a server in the list has no host")
		}
	}
	u, err := url.Parse(scheme + "://" + user + all[0] + rest[end:])
	if err != nil {
		return "", err
	}
	query := u.Query()
	for _, server := range all[1:] {
		query.Add("addr", server)
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// IsCluster reports whether the address is that of a Cluster.
func (a Address) IsCluster() bool { return a.cluster != nil }

// Bounds are a client's timeouts and its number of connections, per primary of a Cluster. Zero: the URL's value, or go-redis's default.
type Bounds struct {
	// Dial bounds a connection attempt, IO a command whose context has no nearer deadline, and the wait for a connection.
	Dial, IO time.Duration
	// Connections is both the maximum number of connections and the number kept open.
	Connections int
}

// onePool makes pipelines use the connections of the pool. By default the client dials separate connections for them.
const onePool = -1

// Open returns a client. It does not wait for a connection, so Redis may be down. The client respects the deadlines of contexts and never
// repeats a command, except in a Cluster after a lost connection. Close it after its last user has ended.
func (a Address) Open(b Bounds) redis.UniversalClient {
	// Otherwise the client negotiates a feature of Redis Enterprise, which relaxes the timeouts.
	plain := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch {
	case a.sentinel != nil:
		o := *a.sentinel
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.PipelinePoolSize = -1, 1, true, onePool
		b.apply(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout, &o.PoolSize, &o.MinIdleConns)
		return redis.NewFailoverClient(&o)
	case a.cluster != nil:
		o := *a.cluster
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.MaintNotificationsConfig, o.PipelinePoolSize = -1, 1, true, plain, onePool
		o.DisableRoutingPolicies = true // they cost a query for the list of commands, and no command here needs them
		b.apply(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout, &o.PoolSize, &o.MinIdleConns)
		return redis.NewClusterClient(&o)
	default:
		o := *a.server
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.MaintNotificationsConfig, o.PipelinePoolSize = -1, 1, true, plain, onePool
		b.apply(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout, &o.PoolSize, &o.MinIdleConns)
		return redis.NewClient(&o)
	}
}

func (b Bounds) apply(dial, read, write, pool *time.Duration, size, idle *int) {
	if b.Dial > 0 {
		*dial = b.Dial
	}
	if b.IO > 0 {
		*read, *write, *pool = b.IO, b.IO, b.IO
	}
	if b.Connections > 0 {
		*size, *idle = b.Connections, b.Connections
	}
}
