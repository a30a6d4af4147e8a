// Package bus reaches Redis as the carrier of hints: with bounds on everything, because whoever waits for Redis waits for
// something that only makes things faster, and with a subscription that notices silence.
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
	// pingEvery is how often a quiet subscription asks whether anybody is there, silence how long none may answer.
	pingEvery = time.Second
	silence   = 3 * time.Second
	// retryFrom and retryTo bound the jittered pause before a lost subscription is made anew.
	retryFrom = 50 * time.Millisecond
	retryTo   = time.Second
)

// Open returns a client for the Redis at url, in one of redisurl.Forms. It connects when first used: a Redis that is down is
// not an error here. A hint that is sent twice, as a Cluster's may be, is applied twice. Close it after its last user has ended.
func Open(url string) (redis.UniversalClient, error) {
	address, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	return address.Open(redisurl.Bounds{Dial: dialTimeout, IO: ioTimeout}), nil
}

// Hear calls on with every message of channel until ctx ends, in their order, from one goroutine. Whenever the subscription
// is lost (an error, or nothing heard for 3 s though pings were sent) it is made anew, with jittered pauses; messages sent in
// between are gone. status is told nil at each new subscription, and why at each loss of one.
func Hear(ctx context.Context, client redis.UniversalClient, channel string, on func(payload string), status func(error)) {
	pause := retryFrom
	for ctx.Err() == nil {
		began := time.Now()
		err := hear(ctx, client, channel, on, status)
		if ctx.Err() != nil {
			return
		}
		status(err)
		if time.Since(began) > retryTo {
			pause = retryFrom
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, retryTo)
	}
}

var errSilent = errors.New("the subscription went silent")

// hear is one subscription's life. go-redis's own loop is not used: its health check only writes pings, and behind a link
// that swallows them it noticed nothing for minutes.
func hear(ctx context.Context, client redis.UniversalClient, channel string, on func(string), status func(error)) error {
	sub := client.Subscribe(ctx, channel)
	defer sub.Close()
	// A blocked read does not end with ctx; closing the subscription ends it.
	defer context.AfterFunc(ctx, func() { sub.Close() })()

	heard := time.Now()
	subscribed := false
	for {
		message, err := sub.ReceiveTimeout(ctx, pingEvery)
		var timeout net.Error
		switch {
		case err == nil:
			heard = time.Now()
		case errors.As(err, &timeout) && timeout.Timeout():
			if time.Since(heard) > silence {
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
				// go-redis reconnected by itself: what was sent meanwhile is lost.
				status(errors.New("the subscription was interrupted"))
			}
			subscribed = true
			status(nil)
		}
	}
}

// Silence keeps go-redis from logging by itself, to stderr and in a form of its own, what its callers are told anyway. It has one
// logger for the whole process: main calls this before the first client is opened.
func Silence() { redis.SetLogger(silent{}) }

type silent struct{}

// Printf drops the line.
func (silent) Printf(context.Context, string, ...any) {}
