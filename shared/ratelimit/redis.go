package ratelimit

import (
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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

// Configure sets what a client needs so that Take keeps its bound: deadlines that count for sockets, no retries, and no
// hand-shakes beyond those of plain Redis. A new connection may take longer than one check, which then fails, and is
// there for the next.
func Configure(options *redis.Options) {
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1
	options.DialerRetries = 1
	options.DialTimeout = time.Second
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// NewRedis returns a counter whose keys in Redis begin with prefix. The client should be made from options that
// Configure has seen; it stays the caller's to close.
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
