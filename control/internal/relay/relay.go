// Package relay tells the edges of a change and waits until none of them answers from before it. Its promise: [Complete]
// means that every edge which may answer from its cache has forgotten what the change replaced.
//
// Postgres alone decides: the table edges says who may answer, and what each has applied. Redis only shortens the wait. The
// order in which things are read is the promise: the change is committed, then the hint is sent, then edges is read.
package relay

import (
	"context"
	"log/slog"
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

// Header carries the Propagation in answers.
const Header = "Deeplink-Propagation"

// Propagation says whether a change has reached every edge.
type Propagation string

const (
	// Complete: no edge answers a later request from before the change.
	Complete Propagation = "complete"
	// Pending: some edge could not be heard of. Cut off from Postgres and Redis, it may answer from before the change until
	// its stale-if-error time is over.
	Pending Propagation = "pending"
)

const (
	// pollEvery is the pace of the look at edges while nobody waits.
	pollEvery = feed.PollEvery
	// waitingEvery is the pace of the look at edges while somebody waits.
	waitingEvery = 50 * time.Millisecond
	// publishTimeout bounds the one try to send a hint.
	publishTimeout = 50 * time.Millisecond
	// readTimeout bounds one look at edges.
	readTimeout = 500 * time.Millisecond
	// unknownLease is how long to wait when edges could not be read at all: the default of EDGE_LEASE.
	unknownLease = 2 * time.Second
)

// drift stretches a span of another machine's clock to one that is surely over on this one: 1 % and 10 ms.
func drift(span time.Duration) time.Duration { return span + span/100 + 10*time.Millisecond }

// Relay spreads changes. Its methods are safe for concurrent use.
type Relay struct {
	pool  *pgxpool.Pool
	redis redis.UniversalClient
	log   *slog.Logger

	mu      sync.Mutex
	view    *view
	waiting map[*wait]struct{}
	look    chan struct{} // one slot: somebody needs a newer view
	mute    atomic.Bool   // the last hint was not sent

	counts counts
}

// New returns a relay. It needs one or two connections of pool at a time, which should be its own: calls that wait for a
// connection must not keep those waiting that have committed.
func New(pool *pgxpool.Pool, client redis.UniversalClient, log *slog.Logger) *Relay {
	return &Relay{
		pool: pool, redis: client, log: log,
		waiting: make(map[*wait]struct{}), look: make(chan struct{}, 1), counts: newCounts(),
	}
}

// Run watches edges and hears acknowledgements until ctx ends. Without it Await can't be complete.
func (r *Relay) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { r.watch(ctx); return nil })
	group.Go(func() error {
		bus.Hear(ctx, r.redis, feed.Acks, r.acknowledged, func(err error) {
			r.counts.hearing.Store(err == nil)
			if err != nil {
				r.log.Warn("acknowledgements are lost until the subscription is back; changes complete by the edges' polls", "error", err)
			}
		})
		return nil
	})
	return group.Wait()
}

// Await publishes a change that was just committed and waits until it is complete, until every lease granted before it has
// run out, or until ctx ends. A zero change is complete at once; one without an ID (a barrier, or a repeat of what is purged) is
// only waited for.
func (r *Relay) Await(ctx context.Context, change feed.Change) Propagation {
	return r.await(ctx, change, 0)
}

// AwaitCreate is Await for a change that replaces nothing but a 404: it waits for one poll of every edge at most.
func (r *Relay) AwaitCreate(ctx context.Context, change feed.Change) Propagation {
	return r.await(ctx, change, pollEvery+waitingEvery)
}

func (r *Relay) await(ctx context.Context, change feed.Change, atMost time.Duration) Propagation {
	if change.XID == 0 {
		return Complete
	}
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("deeplink/control/relay").Start(ctx, "wait for the edges")
	defer span.End()
	w := &wait{change: change, committed: time.Now(), acks: make(map[feed.Ack]struct{}), moved: make(chan struct{}, 1)}
	r.join(w)
	defer r.part(w)
	if change.ID != 0 {
		r.publish(ctx, change)
	}
	propagation := r.until(ctx, w, atMost)
	r.counts.observe(propagation, time.Since(w.committed))
	span.SetAttributes(attribute.String("deeplink.propagation", string(propagation)))
	return propagation
}

// until waits for w to be complete, at most until no lease from before it can hold any more.
func (r *Relay) until(ctx context.Context, w *wait, atMost time.Duration) Propagation {
	over := time.NewTimer(0)
	defer over.Stop()
	for {
		now := time.Now()
		done, lease := r.judge(w, now)
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

// judge reports whether every edge has forgotten, and if not, the longest lease of those that have not.
func (r *Relay) judge(w *wait, now time.Time) (done bool, lease time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A look that began before the commit may have missed an edge that registered in between and read the old state.
	if r.view == nil || r.view.begun.Before(w.committed) {
		return false, unknownLease
	}
	done = true
	for who, e := range r.view.edges {
		if !w.forgotten(who, e, r.view, now) {
			done = false
			lease = max(lease, e.lease)
		}
	}
	return done, lease
}

func (r *Relay) publish(ctx context.Context, change feed.Change) {
	// A caller who hung up must not leave the next one waiting for a poll.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	err := r.redis.Publish(ctx, feed.Hints, change.Encode()).Err()
	r.counts.sending.Heard(err)
	if err != nil {
		r.counts.hintsLost.Add(1)
	}
	if was := r.mute.Swap(err != nil); err != nil && !was {
		r.log.Warn("hints are not sent; the edges' polls bring the changes", "error", err)
	}
}

func (r *Relay) join(w *wait) {
	r.mu.Lock()
	r.waiting[w] = struct{}{}
	r.mu.Unlock()
	select {
	case r.look <- struct{}{}:
	default:
	}
}

func (r *Relay) part(w *wait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, w)
}

// acknowledged hands an acknowledgement to whoever waits for it.
func (r *Relay) acknowledged(payload string) {
	ack, err := feed.ParseAck(payload)
	if err != nil {
		r.log.Warn("ignored a message on the channel of acknowledgements", "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.waiting {
		if w.change.ID == ack.ID {
			w.acks[ack] = struct{}{}
			w.wake()
		}
	}
}

// wait is one call that waits for its change to be complete. Relay.mu guards acks.
type wait struct {
	change    feed.Change
	committed time.Time // not before the commit returned
	acks      map[feed.Ack]struct{}
	moved     chan struct{} // one slot: something may have changed for this wait
}

func (w *wait) wake() {
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// forgotten reports whether an edge can't answer from before the change any more: it acknowledged, it applied a snapshot that
// saw the change, its row has stood still for longer than it may go on, or that time has passed since the commit.
func (w *wait) forgotten(who process, e edge, v *view, now time.Time) bool {
	if _, ok := w.acks[feed.Ack{ID: w.change.ID, Slot: who.slot, Incarnation: who.incarnation}]; ok {
		return true
	}
	return e.applied.Sees(w.change.XID) || v.begun.Sub(e.moved) >= drift(e.hold) || now.Sub(w.committed) >= drift(e.hold)
}
