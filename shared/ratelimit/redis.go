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
	// redisTimeout is how long Redis has for an answer. It takes microseconds; what takes longer than this is down.
	redisTimeout = 25 * time.Millisecond
	// Connections is how many a counter uses at once.
	Connections = 4
	// maxBatch is how many requests it counts in one round trip.
	maxBatch = 64
)

//go:embed take.lua
var takeSource string

var takeScript = redis.NewScript(takeSource)

// Redis counts over all processes that share a Redis server and a prefix, by the clock of that server. It is safe for
// concurrent use.
type Redis struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration // redisTimeout, but in tests
	lines   *batch.Lines[*check]
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

// NewRedis returns a counter whose keys in Redis begin with prefix. The client should be one of Open's; it stays the caller's to
// close. Each check is of one key, so a Cluster serves as well as one server.
func NewRedis(client redis.UniversalClient, prefix string) *Redis {
	r := &Redis{client: client, prefix: prefix, timeout: redisTimeout}
	r.lines = batch.New(Connections, maxBatch, r.send)
	return r
}

// check is one request that is to be counted, and the answer.
type check struct {
	key     string
	surface Surface
	wait    int64 // µs
	err     error
}

// errUnsent is what a check has until it has its answer.
var errUnsent = errors.New("the check was not sent")

// Take asks for one request of key, as Memory.Take does. It waits 25 ms at most for a connection, and as long for Redis; then it is an
// error.
func (r *Redis) Take(ctx context.Context, surface Surface, key Key) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	c := &check{key: r.prefix + surface.Name + ":" + hex.EncodeToString(key[:]), surface: surface, err: errUnsent}
	err := r.lines.Do(ctx, c)
	if err == nil {
		err = c.err
	}
	if err != nil {
		return 0, fmt.Errorf("count a request of %s in Redis: %w", surface.Name, err)
	}
	return time.Duration(c.wait) * time.Microsecond, nil
}

// send counts all of them. Who gave up does not take the others along.
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

// count runs the script for all of them in one round trip, by its hash or its text.
func (r *Redis) count(ctx context.Context, all []*check, run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) {
	pipe := r.client.Pipeline()
	results := make([]*redis.Cmd, len(all))
	for i, c := range all {
		results[i] = run(ctx, pipe, []string{c.key}, c.surface.Limit, c.surface.Window.Microseconds())
	}
	// Each result has its own error.
	_, _ = pipe.Exec(ctx)
	for i, c := range all {
		c.wait, c.err = results[i].Int64()
	}
}
