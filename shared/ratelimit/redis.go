package ratelimit

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"deeplink/shared/batch"
	"deeplink/shared/redisurl"
)

const (
	// roundTripTimeout ends a round trip to Redis. Redis takes microseconds. The bound is for a lost connection; a response that is late
	// because a machine is busy must not be lost, since Redis may have counted the requests.
	roundTripTimeout = 2 * time.Second
	// Connections is the number of connections that a counter uses.
	Connections = 4
	// maxBatch is the maximum number of requests per round trip.
	maxBatch = 64
)

//go:embed take.lua
var takeSource string

var takeScript = redis.NewScript(takeSource)

// Redis counts across all processes that share a Redis server and a prefix, by the clock of that server. It is safe for
// concurrent use.
type Redis struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration // roundTripTimeout, but in tests
	batcher *batch.Batcher[*check]
}

// Open returns the client of a counter for the Redis at url, in one of redisurl.Forms, with so many connections: [Connections] are
// enough. A new connection may take longer than one check, which then fails, and is there for the next. In a Cluster a check whose
// connection was lost may count twice. The caller closes it.
func Open(url string, connections int) (redis.UniversalClient, error) {
	address, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	return address.Open(redisurl.Bounds{Dial: time.Second, Connections: connections}), nil
}

// NewRedis returns a counter whose keys in Redis begin with prefix. Get the client from Open; the caller closes it. Each
// check uses keys of one slot, so a Cluster works like a single server.
func NewRedis(client redis.UniversalClient, prefix string) *Redis {
	r := &Redis{client: client, prefix: prefix, timeout: roundTripTimeout}
	r.batcher = batch.New(Connections, maxBatch, r.send)
	return r
}

// check is one request to count, with its result.
type check struct {
	keys    []string
	windows []any // limit and window in µs of each key
	wait    int64 // µs
	err     error
}

// errUnsent is the error of a check until it has a result.
var errUnsent = errors.New("the check was not sent")

// Take counts one request of key, as Memory.Take does. It waits for a connection until ctx ends, and then at most 2 s for Redis, even if
// ctx ends. After an error of Redis the request may have been counted.
func (r *Redis) Take(ctx context.Context, surface Surface, key Key) (time.Duration, error) {
	return r.take(ctx, request{key: key, surfaces: []Surface{surface}})
}

// take counts a request on all of its surfaces, or on none.
func (r *Redis) take(ctx context.Context, counted request) (time.Duration, error) {
	c := &check{err: errUnsent}
	for i, surface := range counted.surfaces {
		key := r.prefix + surface.Name + ":" + hex.EncodeToString(counted.key[:])
		if i > 0 {
			// The hash tag puts it into the slot of the first key: a Cluster runs a script on the keys of one slot only.
			key = "{" + c.keys[0] + "}:" + surface.Name
		}
		c.keys = append(c.keys, key)
		c.windows = append(c.windows, surface.Limit, surface.Window.Microseconds())
	}
	err := r.batcher.Do(ctx, c)
	if err == nil {
		err = c.err
	}
	if err != nil {
		return 0, fmt.Errorf("count a request of %s in Redis: %w", counted.surfaces[0].Name, err)
	}
	return time.Duration(c.wait) * time.Microsecond, nil
}

// send counts a batch of checks. It does not end with the context of the first check, because the others have not been canceled.
func (r *Redis) send(ctx context.Context, all []*check) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
	defer cancel()
	r.count(ctx, all, takeScript.EvalSha)
	var unscripted []*check
	for _, c := range all {
		if redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			unscripted = append(unscripted, c)
		}
	}
	if len(unscripted) > 0 {
		r.count(ctx, unscripted, takeScript.Eval)
	}
}

// count runs the script for all checks in one round trip, by its hash or its text.
func (r *Redis) count(ctx context.Context, all []*check, run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) {
	pipe := r.client.Pipeline()
	results := make([]*redis.Cmd, len(all))
	for i, c := range all {
		results[i] = run(ctx, pipe, c.keys, c.windows...)
	}
	// Each result has its own error.
	_, _ = pipe.Exec(ctx)
	for i, c := range all {
		c.wait, c.err = results[i].Int64()
	}
}
