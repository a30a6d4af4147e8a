// Package load is a load generator for HTTP/1.1: it sends requests over many connections and counts responses, statuses and latencies.
// It follows no redirects, keeps no cookies, never pipelines, and repeats nothing.
//
// [Run] does one round. A closed loop (Rate 0) sends the next request of a connection after the previous response, which shows
// the capacity of a server. An open loop sends a fixed number of requests per second on schedule and measures latencies from the time
// at which a request was due: a server that stalls delays all requests scheduled meanwhile, not only those in progress (no coordinated
// omission). What is sent is a [Source]: [Fixed] bytes, or a [Request] with changing paths, bodies and clients.
//
//	target, err := load.ParseTarget("http://127.0.0.1:8080")
//	round, err := load.Run(ctx, load.Options{
//		Targets: []load.Target{target}, Connections: 64, Rate: 20_000, Warmup: time.Second, Duration: 10 * time.Second,
//		Source: load.Request{Path: "/demo/sale"}.Source(),
//	})
//
// A connection has a goroutine, which neither locks nor allocates between one request and the next, and a histogram of its own of
// 150 KB. The generator needs a core to itself ([Pin]), or it measures how the two sides take turns.
package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"deeplink/bench/result"
)

// Options configure one round. Everything without a default must be set.
type Options struct {
	// Targets are assigned to the connections in turn: the first connection uses the first target, and so on.
	Targets     []Target
	Connections int
	// Source gives every connection its requests, which are numbered from 0.
	Source func(connection int, target Target) Source
	// Rate is the number of requests per second on all connections together. 0 is a closed loop.
	Rate float64
	// Requests, unless it is 0, ends the round after that many counted requests. Duration is then the timeout in a closed loop, and unused
	// in an open one.
	Requests int64
	// Expected reports whether a status is expected; nil: all are. The latencies of unexpected statuses are counted separately.
	Expected func(status int) bool
	// Warmup is the time before Duration in which requests are sent but not counted.
	Warmup, Duration time.Duration
	// Timeout bounds a connection attempt and the wait for a response, 5 s if 0. It must be below a minute.
	Timeout time.Duration
	// TLS is for https targets, nil for the default.
	TLS *tls.Config
	// Progress, unless it is nil, is called several times per second, and once at the end of the round.
	Progress func(Progress)
}

// Progress is the state of a round.
type Progress struct {
	Warming bool
	Elapsed time.Duration // of Warmup or of Duration
	Sent    int64         // since the start, including the warm-up
	Backlog int64         // requests of an open loop that are due but not sent
}

const (
	defaultTimeout = 5 * time.Second
	longest        = time.Minute // the range of a histogram
)

var errNoTarget = errors.New("load: no target")

func (o *Options) check() error {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	switch {
	case len(o.Targets) == 0:
		return errNoTarget
	case o.Connections < 1 || o.Source == nil:
		return errors.New("load: set Connections and Source")
	case o.Rate < 0 || o.Warmup < 0 || o.Duration <= 0:
		return errors.New("load: rate and times must not be negative, and the duration not 0")
	case o.Timeout < 0 || o.Timeout >= longest:
		return fmt.Errorf("load: the timeout must be below %v", longest)
	}
	return nil
}

// ErrUnreachable means that no round took place because a target refused a connection.
var ErrUnreachable = errors.New("the target cannot be reached")

// Run does one round and returns when all its connections are closed. It fails when a target is unreachable at the start, or when ctx ends
// before any request was counted; later failures are counted in the round. When ctx ends during the round, the round ends early and has its
// results so far.
//
// The constants that begin with Failed name the failures of a round.
func Run(ctx context.Context, options Options) (result.Round, error) {
	if err := options.check(); err != nil {
		return result.Round{}, err
	}
	e := newEngine(options)
	if err := e.connect(ctx); err != nil {
		return result.Round{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	e.run(ctx)
	round := e.result()
	if round.Requests == 0 {
		return round, context.Cause(ctx)
	}
	return round, nil
}

// How requests fail. Each failed request is counted once; its connection is closed and reestablished.
const (
	FailedConnect   = "no connection"      // refused, or timed out
	FailedClosed    = "closed"             // by the server, before the response was complete
	FailedTimeout   = "timeout"            // no complete response within Timeout
	FailedMalformed = "malformed response" // not HTTP/1.1 as RFC 9112 defines it
	FailedUnsent    = "never sent"         // due, but its connection was not free until Timeout after the end
)
