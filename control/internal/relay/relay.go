// Package relay sends hints about a change to the edges and waits for the edges to apply it. Its promise: after [Complete] no edge serves
// the state before the change to a later request. The protocol is in shared/feed/README.md.
//
// Postgres alone decides: the table edges lists the edges that may serve from their caches, and what each has applied. Redis only
// shortens the wait. The order is part of the promise: commit the change, then send the hint, then read edges.
package relay

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"deeplink/shared/bus"
	"deeplink/shared/feed"
)

// Header is the response header that carries the Propagation.
const Header = "Deeplink-Propagation"

// Propagation says whether a change has reached every edge.
type Propagation string

const (
	// Complete: no edge serves the state before the change to a later request.
	Complete Propagation = "complete"
	// Pending: an edge did not confirm the change in time. If it is cut off from Postgres and Redis, it may serve the state before the
	// change until its stale-if-error time has passed.
	Pending Propagation = "pending"
)

const (
	// pollEvery is how often control reads edges while no call waits.
	pollEvery = feed.PollEvery
	// refreshEvery is how often control reads edges while calls wait.
	refreshEvery = 50 * time.Millisecond
	// publishTimeout bounds the single attempt to send a hint.
	publishTimeout = 50 * time.Millisecond
	// readTimeout bounds one read of edges.
	readTimeout = 500 * time.Millisecond
	// unknownLease is how long a call waits if control cannot read edges: the default of EDGE_LEASE.
	unknownLease = 2 * time.Second
)

// drift adds the margin for clock rates, 1 % and 10 ms: after drift(span) by this clock, span has passed by every edge's clock.
func drift(span time.Duration) time.Duration { return span + span/100 + 10*time.Millisecond }

// Relay propagates changes to the edges. Its methods are safe for concurrent use.
type Relay struct {
	pool  *pgxpool.Pool
	redis redis.UniversalClient
	log   *slog.Logger

	mu         sync.Mutex
	view       *view
	waiting    calls
	refreshNow chan struct{} // one slot: a call needs a newer view
	silent     atomic.Bool   // the last hint was not sent

	counts counts
}

// New returns a relay. It uses one or two connections of pool at a time. The pool should be its own, so that calls that wait for a
// connection do not delay calls that have committed.
func New(pool *pgxpool.Pool, client redis.UniversalClient, log *slog.Logger) *Relay {
	return &Relay{
		pool: pool, redis: client, log: log,
		waiting: newCalls(), refreshNow: make(chan struct{}, 1), counts: newCounts(),
	}
}

// Run reads edges and receives acknowledgements until ctx ends. Await returns Complete for a change only while Run runs.
func (r *Relay) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { r.watch(ctx); return nil })
	group.Go(func() error {
		bus.Subscribe(ctx, r.redis, feed.Acks, r.acknowledged, func(err error) {
			r.counts.subscribed.Store(err == nil)
			if err != nil {
				r.log.Warn("subscription to acknowledgements lost; until it is back, changes complete by the edges' polls", "error", err)
			}
		})
		return nil
	})
	return group.Wait()
}

// Await publishes a change that was just committed and waits until it is complete, until every lease granted before it has expired, or
// until ctx ends. A zero change is complete at once. A change without an ID (a barrier, or the repetition of a change whose row was
// purged) is not published.
func (r *Relay) Await(ctx context.Context, change feed.Change) Propagation {
	return r.await(ctx, change, nil, 0)
}

// AwaitCreate is Await for a change that replaces nothing but a 404. It waits for at most one poll of every edge.
func (r *Relay) AwaitCreate(ctx context.Context, change feed.Change) Propagation {
	return r.await(ctx, change, nil, pollEvery+refreshEvery)
}

// AwaitAll is Await, or AwaitCreate if isCreate, and in the same wait also waits until every edge has applied the earlier transactions also. An
// edge's acknowledgement of the change says nothing about them; a snapshot that the edge has applied does.
func (r *Relay) AwaitAll(ctx context.Context, change feed.Change, also []uint64, isCreate bool) Propagation {
	atMost := time.Duration(0)
	if isCreate {
		atMost = pollEvery + refreshEvery
	}
	return r.await(ctx, change, also, atMost)
}

func (r *Relay) await(ctx context.Context, change feed.Change, also []uint64, atMost time.Duration) Propagation {
	if change.XID == 0 && len(also) == 0 {
		return Complete
	}
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("deeplink/control/relay").Start(ctx, "wait for the edges")
	defer span.End()
	w := &wait{change: change, also: also, committed: time.Now(), acks: make(map[feed.Ack]struct{}), moved: make(chan struct{}, 1)}
	r.add(w)
	defer r.remove(w)
	if change.ID != 0 {
		r.publish(ctx, change)
	}
	propagation := r.until(ctx, w, atMost)
	r.counts.observe(propagation, time.Since(w.committed))
	span.SetAttributes(attribute.String("deeplink.propagation", string(propagation)))
	return propagation
}

// until waits for w to be complete, at most until every lease granted before the commit has expired.
func (r *Relay) until(ctx context.Context, w *wait, atMost time.Duration) Propagation {
	over := time.NewTimer(0)
	defer over.Stop()
	for {
		now := time.Now()
		done, lease := r.propagated(w, now)
		if done {
			return Complete
		}
		limit := drift(lease)
		if atMost > 0 {
			limit = atMost
		}
		left := w.committed.Add(limit).Sub(now)
		if left <= 0 {
			return Pending
		}
		over.Reset(left)
		select {
		case <-w.moved:
		case <-over.C:
		case <-ctx.Done():
			return Pending
		}
	}
}

// propagated reports whether every edge has applied the change, and if not, the longest lease of the edges that have not.
func (r *Relay) propagated(w *wait, now time.Time) (done bool, lease time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A view read before the commit may lack an edge that registered since then and loaded the state before the change.
	if r.view == nil || r.view.start.Before(w.committed) {
		return false, unknownLease
	}
	done = true
	for p, e := range r.view.edges {
		if !w.appliedBy(p, e, r.view, now) {
			done = false
			lease = max(lease, e.lease)
		}
	}
	return done, lease
}

func (r *Relay) publish(ctx context.Context, change feed.Change) {
	// The hint is sent even if the client has disconnected: a repeated call waits for the same change.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	err := r.redis.Publish(ctx, feed.Hints, change.Encode()).Err()
	r.counts.sending.Record(err)
	if err != nil {
		r.counts.hintsLost.Add(1)
	}
	if was := r.silent.Swap(err != nil); err != nil && !was {
		r.log.Warn("could not send hints; the edges get the changes by polling", "error", err)
	}
}

func (r *Relay) add(w *wait) {
	r.mu.Lock()
	r.waiting.add(w)
	r.mu.Unlock()
	select {
	case r.refreshNow <- struct{}{}:
	default:
	}
}

func (r *Relay) remove(w *wait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting.remove(w)
}

// acknowledged delivers an acknowledgement to the calls that wait for that change.
func (r *Relay) acknowledged(payload string) {
	ack, err := feed.ParseAck(payload)
	if err != nil {
		r.log.Warn("ignored a message on the channel of acknowledgements", "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.waiting.of(ack.ID) {
		w.acknowledged(ack)
	}
}

// appliedBy reports whether an edge can no longer serve the state before the change: the edge has acknowledged the change, or it has applied a
// snapshot that sees the change, and it has applied one that sees the other transactions; its row has not moved for its hold, or its hold has passed since the commit.
func (w *wait) appliedBy(p process, e edge, v *view, now time.Time) bool {
	_, applied := w.acks[feed.Ack{ID: w.change.ID, Slot: p.slot, Incarnation: p.incarnation}]
	applied = (applied || e.applied.Sees(w.change.XID)) && !slices.ContainsFunc(w.also, func(xid uint64) bool { return !e.applied.Sees(xid) })
	return applied || v.start.Sub(e.moved) >= drift(e.hold) || now.Sub(w.committed) >= drift(e.hold)
}
