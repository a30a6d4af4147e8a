package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// refreshEvery is the pace at which keys are fetched that nobody asks for; ± 10 %, so that controls do not march in step.
	refreshEvery = 10 * time.Minute
	// fetchEvery is the least time between the begins of two fetches once there are keys: unknown kids cost nothing to make up, and
	// must not make us a burden to the provider. It bounds how long a new key stays unknown, too.
	fetchEvery = 10 * time.Second
	// firstRetry is the first pause while there are no keys at all; it doubles up to fetchEvery.
	firstRetry = time.Second
	// grace is how long a key is honoured that the provider has stopped publishing. Rotation is the usual reason, and tokens that
	// were signed before, which live about 60 s, must not be cut off by a provider that does not wait for them. The price is that a
	// key withdrawn because it was stolen works for up to 16 min (refreshEvery + 10 % + grace); a restart forgets it at once.
	grace = 5 * time.Minute
	// patience bounds how long a token with an unknown kid waits for a fetch, maxWaiting how many do.
	patience   = 2 * time.Second
	maxWaiting = 256
)

// keyring holds the provider's keys. One goroutine fetches; all others read what it last published.
type keyring struct {
	url    string
	client *http.Client
	log    *slog.Logger

	view    atomic.Pointer[view]
	asked   chan struct{} // one slot: a token names a key that is not known
	waiting chan struct{} // a place for each token that waits
	fetched func(outcome) // counts a fetch
}

// view is what is known of the provider's keys. It is never changed but for replaced, which is closed when a newer one is there.
type view struct {
	keys     map[name]key // nil until the first were fetched
	at       time.Time    // when they were
	next     time.Time    // when the next fetch may begin
	replaced chan struct{}
}

func newKeyring(o Options, fetched func(outcome)) *keyring {
	k := &keyring{
		url: o.KeysURL, client: newClient(), log: o.Log,
		asked: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting), fetched: fetched,
	}
	k.view.Store(&view{replaced: make(chan struct{})})
	return k
}

// find returns the key named n. One that is not known is asked for, and waited for as long as a fetch can bring it in time.
func (k *keyring) find(ctx context.Context, n name, now time.Time) (key, error) {
	v := k.view.Load()
	if found, ok := v.find(n, now); ok {
		return found, nil
	}
	select {
	case k.asked <- struct{}{}:
	default:
	}
	select {
	case k.waiting <- struct{}{}:
		defer func() { <-k.waiting }()
	default:
		return key{}, v.missing()
	}
	end := time.Now().Add(patience)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		if v.next.After(end) {
			return key{}, v.missing()
		}
		select {
		case <-v.replaced:
		case <-timer.C:
			return key{}, v.missing()
		case <-ctx.Done():
			return key{}, fmt.Errorf("wait for the identity provider's keys: %w", ctx.Err())
		}
		v = k.view.Load()
		if found, ok := v.find(n, now); ok {
			return found, nil
		}
	}
}

func (v *view) find(n name, now time.Time) (key, bool) {
	found, ok := v.keys[n]
	return found, ok && found.honoured(now)
}

// published is how many of the keys the provider published at the last fetch.
func (v *view) published() int {
	n := 0
	for _, k := range v.keys {
		if k.until.IsZero() {
			n++
		}
	}
	return n
}

// missing says why a key was not found.
func (v *view) missing() refusal {
	if v.keys == nil {
		return noKeysYet
	}
	return unknownKey
}

// run fetches the keys until ctx ends: at once, at a slow pace, and when somebody asks.
func (k *keyring) run(ctx context.Context) {
	retry := firstRetry
	for {
		begun := time.Now()
		select {
		case <-k.asked: // this fetch is the answer
		default:
		}
		keys, ignored, err := k.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		before := k.view.Load()
		after := &view{keys: before.keys, at: before.at, next: begun.Add(fetchEvery), replaced: make(chan struct{})}
		latest := begun.Add(refreshEvery - refreshEvery/10 + rand.N(refreshEvery/5))
		switch {
		case err == nil:
			after.keys, after.at = joined(keys, before.keys, begun), begun
		case before.keys == nil:
			after.next = begun.Add(retry)
			latest = after.next
			retry = min(2*retry, fetchEvery)
		default:
			latest = after.next.Add(rand.N(fetchEvery / 5))
		}
		// In this order: who is woken must find what it was woken for.
		k.view.Store(after)
		close(before.replaced)
		k.report(before, after, ignored, err)
		if !k.rest(ctx, after.next, latest) {
			return
		}
	}
}

// rest waits until latest, or from next on for somebody to ask. It returns false when ctx ends.
func (k *keyring) rest(ctx context.Context, next, latest time.Time) bool {
	timer := time.NewTimer(time.Until(latest))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-k.asked:
		timer.Reset(time.Until(next))
	case <-ctx.Done():
		return false
	}
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// report counts and logs a fetch.
func (k *keyring) report(before, after *view, ignored int, err error) {
	result := succeeded
	errors.As(err, &result)
	k.fetched(result)
	switch {
	case err != nil:
		k.log.Warn("the identity provider's keys were not fetched; those known stay", "known", len(after.keys), "error", err)
	case !maps.EqualFunc(before.keys, after.keys, same):
		published := after.published()
		k.log.Info("the identity provider's keys changed",
			"published", published, "withdrawn", len(after.keys)-published, "ignored", ignored)
	}
}
