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
	// refreshEvery is the time between periodic fetches of the keys, ± 10 %, so that several controls do not fetch at the same time.
	refreshEvery = 10 * time.Minute
	// fetchEvery is the minimum time between the starts of two fetches once there are keys, because an attacker can invent unknown kids for
	// free and must not cause load on the provider. It also bounds how long a new key stays unknown.
	fetchEvery = 10 * time.Second
	// firstRetry is the first pause while there are no keys. It doubles up to fetchEvery.
	firstRetry = time.Second
	// grace is how long a key stays valid after the provider has stopped publishing it. The usual reason is rotation, and tokens signed
	// before it, which live about 60 s, must stay valid. The price is that a key withdrawn because it was stolen works for up to 16 min
	// (refreshEvery + 10 % + grace); a restart drops it at once.
	grace = 5 * time.Minute
	// patience bounds how long a token with an unknown kid waits for a fetch, maxWaiting the number of waiting tokens.
	patience   = 2 * time.Second
	maxWaiting = 256
)

// keyring holds the provider's keys. One goroutine fetches; all others read the last view that it published.
type keyring struct {
	url    func() string
	client *http.Client
	log    *slog.Logger

	view    atomic.Pointer[view]
	asked   chan struct{} // one slot: a token names an unknown key
	waiting chan struct{} // one place per waiting token
	fetched func(outcome) // counts a fetch
}

// view is the state of the provider's keys. It is immutable, except that replaced is closed when a newer view is published.
type view struct {
	keys     map[name]key // nil until the first were fetched
	at       time.Time    // when they were
	next     time.Time    // when the next fetch may begin
	replaced chan struct{}
}

func newKeyring(o Options, fetched func(outcome)) *keyring {
	address := o.KeysURLNow
	if address == nil {
		address = func() string { return o.KeysURL }
	}
	k := &keyring{
		url: address, client: newClient(), log: o.Log,
		asked: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting), fetched: fetched,
	}
	k.view.Store(&view{replaced: make(chan struct{})})
	return k
}

// find returns the key named n. For an unknown key it requests a fetch, and waits if the fetch can end in time.
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

// published returns the number of keys that the provider published at the last fetch.
func (v *view) published() int {
	n := 0
	for _, k := range v.keys {
		if k.until.IsZero() {
			n++
		}
	}
	return n
}

// missing returns the reason why a key was not found.
func (v *view) missing() refusal {
	if v.keys == nil {
		return noKeysYet
	}
	return unknownKey
}

// run fetches the keys until ctx ends: at the start, periodically, and on request.
func (k *keyring) run(ctx context.Context) {
	retry := firstRetry
	for {
		begun := time.Now()
		select {
		case <-k.asked: // this fetch serves the request
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
		// Publish first, then wake: a woken call must find the new view.
		k.view.Store(after)
		close(before.replaced)
		k.report(before, after, ignored, err)
		if !k.rest(ctx, after.next, latest) {
			return
		}
	}
}

// rest waits until latest, or from next on until a fetch is requested. It returns false if ctx ends.
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
		k.log.Warn("could not fetch the identity provider's keys; the known keys stay valid", "known", len(after.keys), "error", err)
	case !maps.EqualFunc(before.keys, after.keys, same):
		published := after.published()
		k.log.Info("the identity provider's keys changed",
			"published", published, "withdrawn", len(after.keys)-published, "ignored", ignored)
	}
}
