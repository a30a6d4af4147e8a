package replica

import (
	"context"
	"sync"
	"time"

	"deeplink/shared/bus"
	"deeplink/shared/feed"
)

// ackTimeout bounds the sending of acknowledgements; control waits for the poll if they are lost.
const ackTimeout = 200 * time.Millisecond

// hear applies the hints of control until ctx ends.
func (r *Replica) hear(ctx context.Context) {
	bus.Hear(ctx, r.options.Redis, feed.Hints, r.apply, func(err error) {
		r.counts.hearing.Store(err == nil)
		if err == nil {
			r.options.Log.Info("hearing hints")
			return
		}
		r.counts.subscriptionsLost.Add(1)
		r.options.Log.Warn("hints are lost until the subscription is back; changes arrive by the poll", "error", err)
	})
}

// apply bumps what a hint names and only then has it acknowledged.
func (r *Replica) apply(payload string) {
	change, err := feed.ParseChange(payload)
	if err != nil {
		r.options.Log.Warn("ignored a message on the channel of hints", "error", err)
		return
	}
	r.forget(change.Tags)
	r.counts.hints.Add(1)
	r.heard.add(change.ID)
	r.acks.add(change.ID)
}

// acknowledge sends what there is to acknowledge, all at once, until ctx ends.
func (r *Replica) acknowledge(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.acks.wake:
		}
		// None are left when the last round took one that came just before it.
		if ids := r.acks.take(); len(ids) > 0 {
			r.sendAcks(ctx, ids)
		}
	}
}

func (r *Replica) sendAcks(ctx context.Context, ids []int64) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	pipe := r.options.Redis.Pipeline()
	for _, id := range ids {
		ack := feed.Ack{ID: id, Slot: r.options.Slot, Incarnation: r.incarnation}
		pipe.Publish(ctx, feed.Acks, ack.Encode())
	}
	_, err := pipe.Exec(ctx)
	r.counts.sending.Heard(err)
	if err != nil {
		r.counts.acksLost.Add(int64(len(ids)))
		r.options.Log.Warn("acknowledgements lost", "count", len(ids), "error", err)
	}
}

// acks are the changes that wait to be acknowledged: the loop that hears hints never waits for the one that sends.
type acks struct {
	mu   sync.Mutex
	ids  []int64
	wake chan struct{}
}

func (a *acks) init() { a.wake = make(chan struct{}, 1) }

func (a *acks) add(id int64) {
	a.mu.Lock()
	a.ids = append(a.ids, id)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *acks) take() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := a.ids
	a.ids = nil
	return ids
}

// heard is the set of changes that hints brought lately, so that a poll can tell which ones it alone brought. It keeps two
// generations, the present poll's and the one's before: a change may be heard of just before or just after it is read.
type heard struct {
	mu            sync.Mutex
	present, last map[int64]struct{}
}

// maxHeard bounds a generation while Redis is heard and Postgres can't be polled.
const maxHeard = 1 << 16

func (h *heard) add(id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.present == nil || len(h.present) == maxHeard {
		h.present = make(map[int64]struct{}) // what is forgotten here only makes a poll come sooner
	}
	h.present[id] = struct{}{}
}

// missed returns how many of ids no hint brought, and begins a new generation.
func (h *heard) missed(ids []int64) (missed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		_, now := h.present[id]
		_, before := h.last[id]
		if !now && !before {
			missed++
		}
	}
	h.present, h.last = nil, h.present
	return missed
}
