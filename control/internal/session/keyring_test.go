package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs a test in a bubble of its own time, with a provider in it that publishes keys of signers.
func bubble(t *testing.T, f func(t *testing.T, p *provider, v *Verifier), published ...any) {
	t.Helper()
	bubbleOf(t, func(p *provider) { p.publish(setOf(published...)) }, f)
}

// bubbleOf is one in which the first fetch, too, finds what prepare has the provider answer.
func bubbleOf(t *testing.T, prepare func(p *provider), f func(t *testing.T, p *provider, v *Verifier)) {
	t.Helper()
	t.Parallel()
	ed25519Key() // made outside: what is made once must not belong to a bubble
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		prepare(p)
		f(t, p, newVerifierOf(t, p))
	})
}

// takes checks that a token of s is taken without any waiting.
func (v *Verifier) takes(t *testing.T, s signer) {
	t.Helper()
	now := time.Now()
	if _, err := v.Verify(t.Context(), s.token(now, nil, nil), now); err != nil || !time.Now().Equal(now) {
		t.Errorf("%s: %v after %v, expected to be taken at once", s.kid, err, time.Since(now))
	}
}

// refuses checks that a token of s is refused, and after how long.
func (v *Verifier) refuses(t *testing.T, s signer, expected refusal, after time.Duration) {
	t.Helper()
	now := time.Now()
	_, err := v.Verify(t.Context(), s.token(now, nil, nil), now)
	if err != expected || time.Since(now) != after {
		t.Errorf("%s: %v after %v, expected %v after %v", s.kid, err, time.Since(now), expected, after)
	}
}

func slowly(document string, takes time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(takes):
			io.WriteString(w, document)
		case <-r.Context().Done():
		}
	}
}

// A thousand made-up kids a second, while the provider rotates its key at the worst moment: just after a fetch.
func TestFloodOfUnknownKidsDelaysNoKnownKey(t *testing.T) {
	const flood, latency = 22 * time.Second, 200 * time.Millisecond
	before, after := newEd25519("before"), newEd25519("after")
	var mu sync.Mutex
	var fetches []time.Time
	var rotated time.Time
	answer := func(p *provider) {
		p.answer(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(latency)
			mu.Lock()
			defer mu.Unlock()
			fetches = append(fetches, time.Now().Add(-latency))
			published := setOf(before)
			if !rotated.IsZero() {
				published = setOf(after)
			}
			if len(fetches) == 2 {
				rotated = time.Now()
			}
			io.WriteString(w, published)
		})
	}
	bubbleOf(t, answer, func(t *testing.T, p *provider, v *Verifier) {
		time.Sleep(latency)
		synctest.Wait()

		var all sync.WaitGroup
		body := "." + encode(claimsAt(time.Now())) + ".c2lnbmF0dXJl"
		begun := time.Now()
		var accepted time.Time
		for i := 0; time.Since(begun) < flood; i++ {
			token := encode(members{"alg": "EdDSA", "kid": fmt.Sprint("made up ", i)}) + body
			all.Go(func() {
				now := time.Now()
				if _, err := v.Verify(t.Context(), token, now); err != unknownKey || time.Since(now) > patience {
					t.Errorf("a made-up kid: %v after %v", err, time.Since(now))
				}
			})
			if i%100 == 0 {
				v.takes(t, before)
				now := time.Now()
				token := after.token(now, nil, nil)
				all.Go(func() {
					_, err := v.Verify(t.Context(), token, now)
					mu.Lock()
					defer mu.Unlock()
					if err == nil && (accepted.IsZero() || now.Before(accepted)) {
						accepted = now
					}
					if err != nil && !accepted.IsZero() && now.After(accepted) {
						t.Errorf("the new key was refused again: %v", err)
					}
				})
			}
			time.Sleep(time.Millisecond)
		}
		all.Wait()

		mu.Lock()
		defer mu.Unlock()
		if len(fetches) < 3 {
			t.Errorf("%d fetches, expected one every %v", len(fetches), fetchEvery)
		}
		for i := 1; i < len(fetches); i++ {
			if gap := fetches[i].Sub(fetches[i-1]); gap < fetchEvery {
				t.Errorf("a fetch %v after the one before it, expected %v at least", gap, fetchEvery)
			}
		}
		if accepted.IsZero() || accepted.Sub(rotated) > fetchEvery {
			t.Errorf("rotated at %v, accepted at %v: expected within %v", rotated, accepted, fetchEvery)
		}
	})
}

func TestTokensWithANewKeyShareOneFetch(t *testing.T) {
	before, after := newEd25519("before"), newEd25519("after")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		time.Sleep(time.Minute)
		p.answer(slowly(setOf(before, after), time.Second))
		var all sync.WaitGroup
		now := time.Now()
		for range 100 {
			all.Go(func() {
				if _, err := v.Verify(t.Context(), after.token(now, nil, nil), now); err != nil || time.Since(now) != time.Second {
					t.Errorf("%v after %v, expected to be taken after 1 s", err, time.Since(now))
				}
			})
			all.Go(func() { v.takes(t, before) })
		}
		all.Wait()
		if n := p.fetches.Load(); n != 2 {
			t.Errorf("%d fetches, expected one more than the first", n)
		}
		v.takes(t, after)
	}, before)
}

// A kid that no fetch can bring within the patience is refused at once; the one that can is waited for.
func TestUnknownKidWaitsForAnImminentFetch(t *testing.T) {
	before, after := newEd25519("before"), newEd25519("after")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		synctest.Wait()
		p.publish(setOf(before, after))
		v.refuses(t, after, unknownKey, 0)
		time.Sleep(fetchEvery - patience - time.Millisecond)
		v.refuses(t, after, unknownKey, 0)
		time.Sleep(time.Second)
		now := time.Now()
		_, err := v.Verify(t.Context(), after.token(now, nil, nil), now)
		if err != nil || time.Since(now) != patience-time.Second+time.Millisecond {
			t.Errorf("%v after %v, expected to be taken with the fetch 1.001 s later", err, time.Since(now))
		}
		v.refuses(t, newEd25519("stranger"), unknownKey, 0)
		// That was asked for after the fetch began, so there is one more, and then none.
		time.Sleep(refreshEvery / 2)
		if n := p.fetches.Load(); n != 3 {
			t.Errorf("%d fetches, expected 3", n)
		}
	}, before)
}

// The key is published while a fetch is under way that does not bring it.
func TestKeyRequestedDuringAFetchIsFetchedNext(t *testing.T) {
	before, after := newEd25519("before"), newEd25519("after")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		synctest.Wait()
		p.answer(slowly(setOf(before), 2*time.Second))
		time.Sleep(refreshEvery * 8 / 10)
		for p.fetches.Load() < 2 {
			time.Sleep(time.Second)
		}
		p.publish(setOf(before, after))
		now := time.Now()
		if _, err := v.Verify(t.Context(), after.token(now, nil, nil), now); err != unknownKey {
			t.Errorf("%v, expected %v", err, unknownKey)
		}
		time.Sleep(fetchEvery)
		if n := p.fetches.Load(); n != 3 {
			t.Errorf("%d fetches, expected 3", n)
		}
		v.takes(t, after)
	}, before)
}

func TestHangingProviderDelaysOnlyUnknownKids(t *testing.T) {
	before, stranger := newEd25519("before"), newEd25519("stranger")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		time.Sleep(time.Minute)
		p.answer(slowly("", time.Hour))
		begun := time.Now()
		v.refuses(t, stranger, unknownKey, patience)
		v.takes(t, before)
		v.refuses(t, stranger, unknownKey, patience)
		// The fetch is given up after 5 s; the next one may begin 10 s after it began.
		v.refuses(t, stranger, unknownKey, fetchTimeout-2*patience)
		p.publish(setOf(stranger))
		time.Sleep(time.Until(begun.Add(fetchEvery - time.Millisecond)))
		if n := p.fetches.Load(); n != 2 {
			t.Errorf("%d fetches, expected 2", n)
		}
		time.Sleep(2 * time.Millisecond)
		v.takes(t, stranger)
		v.takes(t, before)
		if got := v.values(t, fetchesMetric)[string(unreachable)]; got != 1 {
			t.Errorf("%v, expected one %s", v.values(t, fetchesMetric), unreachable)
		}
	}, before)
}

func TestNumberOfWaitingTokensIsBounded(t *testing.T) {
	before, stranger := newEd25519("before"), newEd25519("stranger")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		time.Sleep(time.Minute)
		p.answer(slowly("", time.Hour))
		begun := time.Now()
		token := stranger.token(begun, nil, nil)
		var all sync.WaitGroup
		waits := make(chan time.Duration, 2*maxWaiting)
		for range 2 * maxWaiting {
			all.Go(func() {
				_, err := v.Verify(t.Context(), token, begun)
				if err != unknownKey {
					t.Errorf("%v, expected %v", err, unknownKey)
				}
				waits <- time.Since(begun)
			})
		}
		all.Wait()
		close(waits)
		count := make(map[time.Duration]int)
		for wait := range waits {
			count[wait]++
		}
		if count[0] != maxWaiting || count[patience] != maxWaiting {
			t.Errorf("%v, expected %d to wait for %v and as many not at all", count, maxWaiting, patience)
		}
		// The places are free again.
		time.Sleep(fetchEvery)
		v.refuses(t, stranger, unknownKey, patience)
	}, before)
}

func TestWaitEndsWithItsContext(t *testing.T) {
	before, stranger := newEd25519("before"), newEd25519("stranger")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		time.Sleep(time.Minute)
		p.answer(slowly("", time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		now := time.Now()
		_, err := v.Verify(ctx, stranger.token(now, nil, nil), now)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrInvalid) || time.Since(now) != time.Second {
			t.Errorf("%v after %v, expected the deadline of 1 s", err, time.Since(now))
		}
	}, before)
}

func TestVerifyIsUnavailableBeforeTheFirstKeys(t *testing.T) {
	key, stranger := newEd25519("key"), newEd25519("stranger")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		p.answer(slowly("", time.Hour))
		if age := v.values(t, ageMetric)[""]; age != -1 {
			t.Errorf("keys have the age %v before there are any, expected -1", age)
		}
		v.refuses(t, key, noKeysYet, patience)
		if _, err := v.Verify(t.Context(), "junk", time.Now()); err != malformed {
			t.Errorf("junk: %v, expected %v", err, malformed)
		}
		if _, err := v.Verify(t.Context(), key.token(time.Now(), members{"alg": "none"}, nil), time.Now()); err != badAlgorithm {
			t.Errorf("alg none: %v, expected %v", err, badAlgorithm)
		}
		time.Sleep(time.Hour)
		if n := p.fetches.Load(); n < 300 || n > 400 {
			t.Errorf("%d fetches in an hour without keys, expected about 360", n)
		}
		p.publish(setOf(key))
		time.Sleep(fetchEvery)
		v.takes(t, key)
		if _, err := v.Verify(t.Context(), stranger.token(time.Now(), nil, nil), time.Now()); err != unknownKey {
			t.Errorf("stranger: %v, expected %v", err, unknownKey)
		}
	})
}

func TestFirstTokensWaitForTheFirstKeys(t *testing.T) {
	key := newEd25519("key")
	// The first fetch fails, the second, a second later, brings them half a second later.
	answer := func(p *provider) {
		p.answer(func(http.ResponseWriter, *http.Request) { p.answer(slowly(setOf(key), time.Second/2)) })
	}
	bubbleOf(t, answer, func(t *testing.T, p *provider, v *Verifier) {
		now := time.Now()
		if _, err := v.Verify(t.Context(), key.token(now, nil, nil), now); err != nil || time.Since(now) != firstRetry+time.Second/2 {
			t.Errorf("%v after %v, expected to be taken after 1.5 s", err, time.Since(now))
		}
	})
}

func TestKeysStayValidWhileTheProviderIsDown(t *testing.T) {
	key, stranger := newEd25519("key"), newEd25519("stranger")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		synctest.Wait()
		for name, bad := range badAnswers() {
			p.answer(bad.answer)
			asked := p.fetches.Load()
			time.Sleep(fetchEvery)
			v.refuses(t, stranger, unknownKey, 0)
			synctest.Wait()
			if p.fetches.Load() == asked {
				t.Errorf("%s: no request", name)
			}
			v.takes(t, key)
		}
		p.answer(slowly("", time.Hour))
		for range 6 {
			time.Sleep(time.Hour)
			v.takes(t, key)
		}
		if age := v.values(t, ageMetric)[""]; age < 6*3600 || age > 7*3600 {
			t.Errorf("the keys are %v s old, expected six hours", age)
		}
		p.publish(setOf(key, stranger))
		time.Sleep(fetchEvery + fetchTimeout + fetchEvery/5)
		if age := v.values(t, ageMetric)[""]; age > 20 {
			t.Errorf("the keys are %v s old, expected to be fetched again", age)
		}
		v.takes(t, stranger)
	}, key)
}

func TestKeysAreRefreshedPeriodically(t *testing.T) {
	before, after := newEd25519("before"), newEd25519("after")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		synctest.Wait()
		begun := time.Now()
		var pauses []time.Duration
		p.answer(func(w http.ResponseWriter, _ *http.Request) {
			pauses = append(pauses, time.Since(begun))
			begun = time.Now()
			io.WriteString(w, setOf(before, after))
		})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		v.takes(t, after)
		least, most := slices.Min(pauses), slices.Max(pauses)
		if least < refreshEvery*9/10 || most > refreshEvery*11/10 || most-least < refreshEvery/20 {
			t.Errorf("fetches after %v to %v, expected %v ± 10 %% and not always the same", least, most, refreshEvery)
		}
	}, before)
}

func TestWithdrawnKeysExpireAfterTheirGrace(t *testing.T) {
	before, after := newEd25519("before"), newEd25519("after")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		time.Sleep(time.Minute)
		p.publish(setOf(after))
		now := time.Now()
		if _, err := v.Verify(t.Context(), after.token(now, nil, nil), now); err != nil {
			t.Fatal(err)
		}
		if keys := v.values(t, keysMetric)[""]; keys != 1 {
			t.Errorf("%v keys, expected the published one", keys)
		}
		time.Sleep(grace - time.Millisecond)
		v.takes(t, before)
		time.Sleep(time.Millisecond)
		now = time.Now()
		if _, err := v.Verify(t.Context(), before.token(now, nil, nil), now); err != unknownKey {
			t.Errorf("%v after %v of grace, expected %v", err, grace, unknownKey)
		}
		// Fetches in between do not begin the grace anew, and what is over is forgotten.
		time.Sleep(refreshEvery * 2)
		now = time.Now() // it may wait for a fetch, if the last one was some seconds ago
		if _, err := v.Verify(t.Context(), before.token(now, nil, nil), now); err != unknownKey {
			t.Errorf("%v after more fetches, expected %v", err, unknownKey)
		}
		if waited := time.Since(now); waited > patience {
			t.Errorf("it was refused after %v, expected at most %v", waited, patience)
		}
		v.takes(t, after)
		if known := len(v.keyring.view.Load().keys); known != 1 {
			t.Errorf("%d keys are known, expected 1", known)
		}
		// A provider that changes its mind.
		p.publish(setOf(before, after))
		time.Sleep(refreshEvery * 2)
		v.takes(t, before)
	}, before)
}

func TestGraceOfAWithdrawnKeyIsNotExtended(t *testing.T) {
	before, after, stranger := newEd25519("before"), newEd25519("after"), newEd25519("stranger")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		time.Sleep(time.Minute)
		p.publish(setOf(after))
		begun := time.Now()
		for time.Since(begun) < grace {
			v.takes(t, before)
			now := time.Now()
			v.Verify(t.Context(), stranger.token(now, nil, nil), now) // asks for a fetch
			time.Sleep(fetchEvery / 2)
		}
		if p.fetches.Load() < 20 {
			t.Errorf("%d fetches, expected one every %v", p.fetches.Load(), fetchEvery)
		}
		now := time.Now()
		if _, err := v.Verify(t.Context(), before.token(now, nil, nil), now); err != unknownKey {
			t.Errorf("%v, expected %v", err, unknownKey)
		}
	}, before)
}

func TestReplacedKeyEndsAtOnce(t *testing.T) {
	stolen, replacement, stranger := newEd25519("key"), newEd25519("key"), newEd25519("stranger")
	bubble(t, func(t *testing.T, p *provider, v *Verifier) {
		time.Sleep(time.Minute)
		p.publish(setOf(replacement))
		v.refuses(t, stranger, unknownKey, 0)
		v.takes(t, replacement)
		v.refuses(t, stolen, badSignature, 0)
	}, stolen)
}
