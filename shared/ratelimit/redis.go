package ratelimit

import (
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"deeplink/shared/redisurl"
)

// redisTimeout bounds one check. Redis answers in microseconds; what takes longer than this is down.
const redisTimeout = 25 * time.Millisecond

//go:embed take.lua
var takeSource string

var takeScript = redis.NewScript(takeSource)

// Redis counts over all processes that share a Redis server and a prefix, by the clock of that server. It is safe for
// concurrent use.
type Redis struct {
	client redis.UniversalClient
	prefix string
}

// Open returns the client of a counter for the Redis at url, in one of redisurl.Forms, with so many connections. A new connection
// may take longer than one check, which then fails, and is there for the next. In a Cluster a check whose connection was lost
// may count twice. The caller closes it.
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
	return &Redis{client: client, prefix: prefix}
}

// Take asks for one request of key, as Memory.Take does. It answers within 25 ms, or with an error when Redis does not.
func (r *Redis) Take(ctx context.Context, surface Surface, key Key) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	name := r.prefix + surface.Name + ":" + hex.EncodeToString(key[:])
	wait, err := takeScript.Run(ctx, r.client, []string{name}, surface.Limit, surface.Window.Microseconds()).Int64()
	if err != nil {
		return 0, fmt.Errorf("count a request of %s in Redis: %w", surface.Name, err)
	}
	return time.Duration(wait) * time.Microsecond, nil
}
