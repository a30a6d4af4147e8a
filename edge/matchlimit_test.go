package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"deeplink/shared/ratelimit"
	"deeplink/shared/testkit"
)

var retryMessage = regexp.MustCompile(`^Rate limit exceeded\. Retry after (\d+) second\(s\)\.$`)

// checkLimited requires a 429 whose message contains the delay, without rate-limit headers.
func checkLimited(t *testing.T, a answer) {
	t.Helper()
	checkEnvelope(t, a, "/match")
	checkHeaders(t, a)
	message, _ := a.envelope(t)["message"].(string)
	m := retryMessage.FindStringSubmatch(message)
	if a.status != 429 || m == nil || a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Fatalf("%d %v %s, expected 429", a.status, a.header, a.body)
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n < 1 || n > 60 {
		t.Errorf("retry after %d seconds, expected 1 to 60", n)
	}
}

func from(address string) string { return "X-Forwarded-For: " + address }

// burst sends n requests from one address, four at a time, alternating between two edges, and counts the admitted ones.
func burst(t *testing.T, edges [2]*testEdge, address string, n int) (admitted int) {
	t.Helper()
	answers := make([]answer, n)
	var next atomic.Int64
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				// Every POST counts, even if its body is neither a token nor JSON.
				raw := request("POST", "/match", from(address), "Content-Type: application/json", "Content-Length: 2") + []string{"{}", "xx"}[i/2%2]
				var err error
				if answers[i], err = roundTrip(edges[i%2].addr, raw); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	for _, a := range answers {
		if a.status == 400 {
			admitted++
		} else {
			checkLimited(t, a)
		}
	}
	return admitted
}

func TestThirtyPostsAMinuteOverAllEdges(t *testing.T) {
	hints := testkit.NewRedis(t)
	edges := twoEdges(t, *testkit.NewDatabase(t), hints)
	r := rows{t, edges[0].owner}
	link := r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	fallbacks := func() string {
		return edges[0].metrics(t)["deeplink_edge_match_limit_fallbacks_total"] + edges[1].metrics(t)["deeplink_edge_match_limit_fallbacks_total"]
	}
	const address = "192.0.2.1"
	before := fallbacks()
	// Other methods do not count.
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT"} {
		edges[0].ask(t, method, "/match", from(address))
	}
	if admitted := burst(t, edges, address, 60); admitted != ratelimit.Match.Limit || fallbacks() != before {
		t.Fatalf("%d of 60 posts to two edges were admitted, %s without Redis, expected %d and %s", admitted, fallbacks(), ratelimit.Match.Limit, before)
	}
	var token string
	var refused [2]answer
	until(t, "two posts that Redis counts", func() bool {
		token = fresh(t, link)
		before := fallbacks()
		for i, e := range edges {
			refused[i] = e.send(t, request("POST", "/match", from(address), "Content-Type: application/json",
				fmt.Sprintf("Content-Length: %d", len(clipboard(token))))+clipboard(token))
		}
		return fallbacks() == before
	})
	for i, e := range edges {
		checkLimited(t, refused[i])
		if a := e.get(t, "/abcd/x", from(address)); a.status != 302 {
			t.Errorf("a click from there: %d, expected 302", a.status)
		}
	}
	if a := edges[0].post(t, clipboard(token)); !isMatch(a) {
		t.Errorf("from elsewhere: %d %s, expected a match", a.status, a.body)
	}
	if a := edges[1].post(t, clipboard(token)); a.body != nothing {
		t.Errorf("spent: %s", a.body)
	}

	// Without Redis, each edge counts on its own, starting from the requests that it has admitted.
	if err := hints.Kill(); err != nil {
		t.Fatal(err)
	}
	alone := [2]*testEdge{edges[0], edges[0]}
	if admitted := burst(t, alone, "192.0.2.200", 100); admitted != ratelimit.Match.Limit {
		t.Errorf("without Redis %d of 100 posts to one edge were admitted, expected %d", admitted, ratelimit.Match.Limit)
	}
	if before := strings.TrimLeft(fallbacks(), "0"); before == "" {
		t.Error("no fallback was counted")
	}
	another := fresh(t, link)
	if a := edges[1].post(t, clipboard(another)); !isMatch(a) {
		t.Errorf("a token without Redis: %d %s, expected a match", a.status, a.body)
	}
	checkNothing(t, "spent without Redis", edges[0].post(t, clipboard(another)))
}
