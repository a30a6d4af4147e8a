// Package batch sends concurrent requests to a server in batches. A single request is sent at once. While all senders are busy requests
// queue, and the next free sender takes many of them in one batch, so the cost per request falls as load rises.
package batch

import (
	"context"
	"slices"
	"sync"
)

// Batcher limits the number of concurrent batches. A request that finds a free sender is sent at once, by itself. While all senders are
// busy requests queue. A caller that finishes its batch releases its sender to the first queued request, whose caller then sends the
// queued requests as one batch. Batcher is safe for concurrent use.
type Batcher[Q any] struct {
	senders, most int
	send          func(ctx context.Context, all []Q)

	mu    sync.Mutex
	busy  int // senders in use
	queue []*request[Q]
}

// New returns a Batcher that runs at most senders batches at a time, each of at most most requests. send must store the results in the
// requests. Its context is that of the first request of the batch.
func New[Q any](senders, most int, send func(ctx context.Context, all []Q)) *Batcher[Q] {
	return &Batcher[Q]{senders: max(1, senders), most: most, send: send}
}

// request is a queued call of Do.
type request[Q any] struct {
	value Q
	event chan event // one slot: a queued request gets one event
}

// event ends the wait of a queued request.
type event int

const (
	done      event = iota // another caller has sent the request
	hasSender              // the caller has a sender and must send
)

// Do sends q, alone or in a batch, and returns when send has returned. The error is that of ctx if it ended while q was queued.
func (b *Batcher[Q]) Do(ctx context.Context, q Q) error {
	r := &request[Q]{q, make(chan event, 1)}
	if !b.enter(r) {
		select {
		case <-ctx.Done():
			if b.leave(r) {
				return ctx.Err()
			}
			if <-r.event == hasSender {
				b.release()
				return ctx.Err()
			}
			return nil
		case e := <-r.event:
			if e == done {
				return nil
			}
			// The context of this request would apply to the whole batch.
			if ctx.Err() != nil {
				b.release()
				return ctx.Err()
			}
		}
	}
	b.sendBatch(ctx, r)
	return nil
}

// Load returns how many senders are busy and how many requests are queued.
func (b *Batcher[Q]) Load() (busy, queued int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy, len(b.queue)
}

// enter takes a free sender, or appends the request to the queue.
func (b *Batcher[Q]) enter(r *request[Q]) (hasSender bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy < b.senders {
		b.busy++
		return true
	}
	b.queue = append(b.queue, r)
	return false
}

// leave removes r from the queue. It returns false if r is no longer in the queue: then r gets an event.
func (b *Batcher[Q]) leave(r *request[Q]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, r)
	if i < 0 {
		return false
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	return true
}

// release passes the sender to the first queued request, or frees it.
func (b *Batcher[Q]) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.busy--
		return
	}
	next := b.queue[0]
	b.queue = slices.Delete(b.queue, 0, 1)
	next.event <- hasSender
}

// collect removes the queued requests that fit into the batch of a request that has a sender.
func (b *Batcher[Q]) collect() []*request[Q] {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.queue), b.most-1)
	collected := slices.Clone(b.queue[:n])
	b.queue = slices.Delete(b.queue, 0, n)
	return collected
}

// sendBatch sends first, which has a sender, together with queued requests. Then it releases the sender.
func (b *Batcher[Q]) sendBatch(ctx context.Context, first *request[Q]) {
	others := b.collect()
	defer func() {
		b.release()
		for _, r := range others {
			r.event <- done
		}
	}()
	all := make([]Q, 1, 1+len(others))
	all[0] = first.value
	for _, r := range others {
		all = append(all, r.value)
	}
	b.send(ctx, all)
}
