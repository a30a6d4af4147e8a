package replica

import (
	"context"
	"sync"
	"time"

	"deeplink/shared/bus"
	"deeplink/shared/feed"
)

// ackTimeout bounds the sending of acknowledgements. If they are lost, control waits for this edge's next poll.
const ackTimeout = 200 * time.Millisecond

// subscribe applies the hints that control publishes, until ctx ends.
func (r *Replica) subscribe(ctx context.Context) {
	bus.Subscribe(ctx, r.options.Redis, feed.Hints, r.apply, func(err error) {
		r.counts.subscribed.Store(err == nil)
		if err == nil {
			r.options.Log.Info("subscribed to hints")
			return
		}
		r.counts.subscriptionsLost.Add(1)
		r.options.Log.Warn("subscription to hints lost; until it is back, changes arrive by polling", "error", err)
	})
}

// apply bumps the stamps of the hint's tags and then queues the acknowledgement, never before: control takes an acknowledgement as proof
// that no later request gets an entry from before the change.
func (r *Replica) apply(payload string) {
	change, err := feed.ParseChange(payload)
	if err != nil {
		r.options.Log.Warn("ignored an invalid message on the hints channel", "error", err)
		return
	}
	r.bump(change.Tags)
	r.counts.hints.Add(1)
	r.received.add(change.ID)
	r.acks.add(change.ID)
}

// acknowledge sends the queued acknowledgements in one pipeline per wake-up, until ctx ends.
func (r *Replica) acknowledge(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.acks.wake:
		}
		// The list is empty if the previous round already took the acknowledgement that caused this wake-up.
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
	r.counts.sending.Record(err)
	if err != nil {
		r.counts.acksLost.Add(int64(len(ids)))
		r.options.Log.Warn("could not send acknowledgements; control will wait for the next poll", "count", len(ids), "error", err)
	}
}

// acks queues the changes to acknowledge, so that the loop that receives hints never waits for the loop that sends acknowledgements.
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

// receivedHints is the set of changes that arrived as hints lately, so that a poll can count the changes that arrived without a hint. It
// keeps two generations, of the current and of the previous poll: a hint can arrive shortly before or shortly after the poll reads
// the change.
type receivedHints struct {
	mu            sync.Mutex
	present, last map[int64]struct{}
}

// maxReceived bounds a generation while hints arrive and Postgres cannot be polled.
const maxReceived = 1 << 16

func (h *receivedHints) add(id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.present == nil || len(h.present) == maxReceived {
		h.present = make(map[int64]struct{}) // a lost entry only makes the next poll run sooner
	}
	h.present[id] = struct{}{}
}

// missed returns how many of ids arrived without a hint, and starts a new generation.
func (h *receivedHints) missed(ids []int64) (missed int) {
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
