// Package bus connects to Redis for hints and acknowledgements. Every operation has a short bound, because Redis only makes propagation
// faster, and a subscription detects a silent connection.
package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"deeplink/shared/redisurl"
)

const (
	// dialTimeout and ioTimeout bound a connection attempt and a command whose context has no nearer deadline.
	dialTimeout = 500 * time.Millisecond
	ioTimeout   = 200 * time.Millisecond
	// pingEvery is how often a quiet subscription sends a ping. After silence without any reply the subscription counts as lost.
	pingEvery = time.Second
	silence   = 3 * time.Second
	// retryFrom and retryTo bound the jittered pause before a lost subscription is renewed.
	retryFrom = 50 * time.Millisecond
	retryTo   = time.Second
)

// Open returns a client for the Redis at url, in one of redisurl.Forms. The client connects on first use, so Open succeeds while Redis is
// down. A Cluster may deliver a hint twice, which is harmless. Close the client after its last user has ended.
func Open(url string) (redis.UniversalClient, error) {
	address, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	return address.Open(redisurl.Bounds{Dial: dialTimeout, IO: ioTimeout}), nil
}

// Subscribe calls on with every message of channel, in order and from one goroutine, until ctx ends. When the subscription is lost (an
// error, or no message and no reply to a ping for 3 s), Subscribe renews it after a jittered pause. Messages sent in between are lost.
// It calls status(nil) for each new subscription, and status with the reason for each lost one.
func Subscribe(ctx context.Context, client redis.UniversalClient, channel string, on func(payload string), status func(error)) {
	pause := retryFrom
	for ctx.Err() == nil {
		start := time.Now()
		err := receive(ctx, client, channel, on, status)
		if ctx.Err() != nil {
			return
		}
		status(err)
		if time.Since(start) > retryTo {
			pause = retryFrom
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, retryTo)
	}
}

var errSilent = errors.New("no reply to pings on the subscription")

// receive runs one subscription until it is lost. It does not use go-redis's own receive loop: that loop's health check only writes pings
// and does not check the replies, and on a connection that was silent it detected nothing for minutes.
func receive(ctx context.Context, client redis.UniversalClient, channel string, on func(string), status func(error)) error {
	sub := client.Subscribe(ctx, channel)
	defer sub.Close()
	// A blocked read does not end with ctx; closing the subscription ends it.
	defer context.AfterFunc(ctx, func() { sub.Close() })()

	last := time.Now() // of the last message or reply
	subscribed := false
	for {
		message, err := sub.ReceiveTimeout(ctx, pingEvery)
		var timeout net.Error
		switch {
		case err == nil:
			last = time.Now()
		case errors.As(err, &timeout) && timeout.Timeout():
			if time.Since(last) > silence {
				return errSilent
			}
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		switch m := message.(type) {
		case *redis.Message:
			on(m.Payload)
		case *redis.Subscription:
			if subscribed {
				// go-redis has reconnected: messages sent meanwhile are lost.
				status(errors.New("the subscription was interrupted"))
			}
			subscribed = true
			status(nil)
		}
	}
}

// Silence turns off go-redis's own logging to stderr, because callers get the same errors. go-redis has one logger per process: main calls
// Silence before the first client is opened.
func Silence() { redis.SetLogger(silent{}) }

type silent struct{}

// Printf drops the line.
func (silent) Printf(context.Context, string, ...any) {}
