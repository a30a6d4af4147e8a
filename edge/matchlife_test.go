package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"deeplink/shared/testkit"
)

// When a statement that ends a link is committed, the link's tokens stop matching, and none is spent.
func TestTokenOfALinkThatDoesNotResolveIsNeitherMatchedNorSpent(t *testing.T) {
	t.Parallel()
	e := startMatching(t)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	domain := r.domain(organization, "links.customer.example", "verified")
	for i, test := range []struct{ name, ending, revival string }{
		{"deactivated", `update links set is_active = false`, `update links set is_active = true`},
		{"expired", `update links set expiry = now() - interval '1 hour'`, `update links set expiry = now() + interval '1 hour'`},
		{"suspended", `update organizations set suspended = true`, `update organizations set suspended = false`},
		{"on a domain that is not verified", `update domains set status = 'pending' where host is not null`, `update domains set status = 'verified'`},
		{"deleted", `delete from links`, ``},
	} {
		link := r.link(organization, fmt.Sprintf("x%d", i), map[string]any{"domain_id": domain})
		held, token := fresh(t, link), fresh(t, link)
		first := e.post(t, clipboardOf(held, "a"))
		if !isMatch(first) {
			t.Fatalf("%s: %d %s before", test.name, first.status, first.body)
		}
		before := r.spent()
		r.exec(test.ending)
		checkNothing(t, test.name, e.post(t, clipboard(token)))
		checkNothing(t, test.name+", for a device that retries", e.post(t, clipboardOf(held, "a")))
		if spent := r.spent(); spent != before {
			t.Errorf("%s: %s tokens are spent, expected %s as before", test.name, spent, before)
		}
		if test.revival == "" {
			continue
		}
		r.exec(test.revival)
		if a := e.post(t, clipboard(token)); !isMatch(a) {
			t.Errorf("no longer %s: %d %s, expected a match", test.name, a.status, a.body)
		}
		if again := e.post(t, clipboardOf(held, "a")); again.body != first.body && test.name != "expired" {
			t.Errorf("no longer %s, retried: %s, expected %s", test.name, again.body, first.body)
		}
	}
}

// The freshness promise holds here too, without waiting for a poll or a hint.
func TestNoTokenMatchesAfterADeletionIsCommitted(t *testing.T) {
	t.Parallel()
	e := startMatching(t)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	late, matched := 0, 0
	for round := range 20 {
		link := r.link(organization, fmt.Sprintf("x%d", round), nil)
		var mu sync.Mutex
		var gone bool
		var posting sync.WaitGroup
		for range 4 {
			posting.Go(func() {
				for after := 0; after < 3; {
					mu.Lock()
					begunAfter := gone
					mu.Unlock()
					a, err := roundTrip(e.addr, postRequest(clipboard(fresh(t, link))))
					if err != nil {
						t.Error(err)
						return
					}
					switch {
					case isMatch(a) && begunAfter:
						t.Errorf("round %d: matched though the link had been deleted before", round)
					case isMatch(a):
						mu.Lock()
						matched++
						mu.Unlock()
					default:
						checkNothing(t, "a deleted link", a)
					}
					if begunAfter {
						after++
						mu.Lock()
						late++
						mu.Unlock()
					}
				}
			})
		}
		time.Sleep(time.Duration(round%5) * time.Millisecond)
		r.exec(`delete from links`)
		mu.Lock()
		gone = true
		mu.Unlock()
		posting.Wait()
	}
	if late != 20*4*3 || matched == 0 {
		t.Errorf("%d posts after deletions, %d matches before them", late, matched)
	}
}

// Tokens that Postgres is slow to redeem use connections of their own.
func TestStuckRedemptionsDoNotDelayClicks(t *testing.T) {
	t.Parallel()
	e := startMatching(t)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	link := r.link(organization, "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	lock, err := testkit.Connect(t, e.owner.Config().ConnString()).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(context.Background(), `lock table match_redemptions in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	var posting sync.WaitGroup
	tokens := make([]string, 100)
	for i := range tokens {
		tokens[i] = fresh(t, link)
		posting.Go(func() {
			a, err := roundTrip(e.addr, postRequest(clipboard(tokens[i])))
			if err != nil || a.status != 503 || a.header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("a stuck redemption: %d %s, %v; expected 503", a.status, a.body, err)
			}
		})
	}
	waiting := func() (n int) {
		if err := e.owner.QueryRow(context.Background(), waitingSQL).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	until(t, "as many redemptions as there are connections wait for the lock", func() bool { return waiting() == 4 })
	for i := range 50 { // misses, each with a query to Postgres
		if a := e.get(t, fmt.Sprintf("/abcd/unknown%d", i)); a.status != 404 {
			t.Fatalf("a click: %d %s, expected 404", a.status, a.body)
		}
	}
	if a := e.get(t, "/abcd/x"); a.status != 302 {
		t.Errorf("a click: %d %s, expected 302", a.status, a.body)
	}
	checkNothing(t, "a forged token", e.post(t, clipboard("AQ"+strings.Repeat("A", 72))))
	posting.Wait()
	// Postgres ends the session shortly after the client gets its response; nothing is promised for that moment.
	until(t, "the redemptions are canceled", func() bool { return waiting() == 0 })
	if err := lock.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	if spent := r.spent(); spent != "0" {
		t.Errorf("%s tokens are spent without a response", spent)
	}
	for _, token := range tokens {
		if a := e.post(t, clipboard(token)); !isMatch(a) {
			t.Fatalf("unstuck: %d %s, expected a match", a.status, a.body)
		}
	}
}

func TestWithoutKeysNothingMatches(t *testing.T) {
	t.Parallel()
	// An edge that could not poll in time has logged a warning about that, too.
	until(t, "an edge that warns once", func() bool {
		e := startEdge(t, nil)
		nothingMatches(t, e)
		log := e.log.String()
		if len(warnings(log)) != 1 || strings.Count(log, "MATCH_TOKEN_KEYS") != 1 {
			t.Fatalf("logged:\n%s\nexpected one warning", log)
		}
		return strings.Count(log, "level=WARN") == 1
	})
}

func nothingMatches(t *testing.T, e *testEdge) {
	t.Helper()
	r := rows{t, e.owner}
	link := r.link(r.organization("abcd"), "x", nil)
	for _, token := range []string{fresh(t, link), "x", uuid.NewString()} {
		checkNothing(t, token, e.post(t, clipboard(token)))
	}
	if a := e.post(t, `{}`); a.status != 400 {
		t.Errorf("{}: %d, expected 400", a.status)
	}
}

func TestRedemptionThatFailsIs500(t *testing.T) {
	t.Parallel()
	e := startMatching(t)
	r := rows{t, e.owner}
	link := r.link(r.organization("abcd"), "x", nil)
	r.exec(`revoke select (path) on links from deeplink_edge`)
	a := e.post(t, clipboard(fresh(t, link)), "X-Request-Id: find-me")
	if a.status != 500 || strings.Contains(a.body, "permission") {
		t.Errorf("%d %s, expected a 500 without the cause", a.status, a.body)
	}
	checkEnvelope(t, a, "/match")
	if log := e.log.String(); strings.Count(log, "find-me") != 1 || !strings.Contains(log, "permission denied") {
		t.Errorf("logged:\n%s\nexpected the cause, once, with the request id", log)
	}
	r.exec(`grant select (path) on links to deeplink_edge`)
}
