package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"deeplink/shared/ratelimit"
)

// flood sends this many clicks on /abcd/x and its /data, in turns, then one probe, and counts the admitted ones. It repeats that, with
// another attempt number for the addresses, until all of them fall into one window of the limit.
func (e *testEdge) flood(t *testing.T, clicks int, forwarded func(attempt, click int) string, probe func(attempt int) string) (admitted int, refused, probed answer) {
	t.Helper()
	for attempt := range 20 {
		var raw strings.Builder
		for i := range clicks + 1 {
			path, from := "/abcd/x", probe(attempt)
			if i < clicks {
				from = forwarded(attempt, i)
			}
			if i%2 == 1 {
				path += "/data"
			}
			fmt.Fprintf(&raw, "GET %s HTTP/1.1\r\nHost: go.example.com\r\nX-Forwarded-For: %s\r\n\r\n", path, from)
		}
		time.Sleep(ratelimit.Resolution.Window) // the window of the previous attempt is over
		began := time.Now()
		answers := e.pipeline(t, raw.String(), clicks+1)
		if time.Since(began) >= ratelimit.Resolution.Window {
			continue
		}
		for i, a := range answers[:clicks] {
			switch {
			case a.status == 429:
				refused = a
			case i%2 == 0 && a.status == 302, i%2 == 1 && a.status == 200:
				admitted++
			default:
				t.Fatalf("request %d: status %d", i, a.status)
			}
		}
		return admitted, refused, answers[clicks]
	}
	t.Fatal("the machine is too slow to send so many requests within a second")
	return 0, refused, probed
}

func TestRateLimitIsExactPerClient(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(c *options) {
		if err := c.TrustedProxies.UnmarshalText([]byte("127.0.0.0/8, 10.0.0.0/8")); err != nil {
			t.Fatal(err)
		}
	})
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	e.get(t, "/abcd/x")
	for i, test := range []struct {
		// %d is a different number for each request.
		name, flood, probe string
		limited            bool
	}{
		{"the same address", "192.0.%d.1", "192.0.%d.1", true},
		{"another address", "192.0.%d.1", "192.0.%d.2", false},
		{"the right-most address that is not a proxy", "192.0.%d.1, 10.1.2.3", "203.0.113.7, 192.0.%d.1", true},
		{"an address that the client added", "192.0.%d.1", "192.0.%d.1, 203.0.113.7", false},
		{"the same /64", "2001:db8:0:%d::1", "2001:db8:0:%d:ffff::2", true},
		{"another /64", "2001:db8:0:%d::1", "2001:db8:1:%d::1", false},
		{"an IPv4 address written as IPv6", "192.0.%d.1", "::ffff:192.0.%d.1", true},
		{"an address with a port", "192.0.%d.1", "192.0.%d.1:4711", true},
		{"nonsense counts as the proxy", "192.0.%d.1", "192.0.%d.1, nonsense", false},
	} {
		number := func(attempt int) int { return 10*attempt + i + 1 }
		admitted, refused, probed := e.flood(t, 600,
			func(attempt, _ int) string { return fmt.Sprintf(test.flood, number(attempt)) },
			func(attempt int) string { return fmt.Sprintf(test.probe, number(attempt)) })
		if admitted != 500 {
			t.Errorf("%s: %d of 600 requests within a second were admitted, expected 500", test.name, admitted)
		}
		if m := refused.envelope(t)["message"]; m != "Rate limit exceeded. Retry after 1 second(s)." {
			t.Errorf("%s: message %q", test.name, m)
		}
		checkHeaders(t, refused)
		if (probed.status == 429) != test.limited {
			t.Errorf("%s: after 600 requests for %s one for %s has status %d", test.name, test.flood, test.probe, probed.status)
		}
	}
	if a := e.get(t, "/healthz"); a.status != 200 {
		t.Errorf("/healthz: %d, expected 200", a.status)
	}
}

func TestForwardedForOfUntrustedPeersIsIgnored(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	admitted, _, probed := e.flood(t, 600,
		func(_, click int) string { return fmt.Sprintf("192.0.2.%d", click%250) },
		func(int) string { return "198.51.100.1" })
	if admitted != 500 || probed.status != 429 {
		t.Errorf("%d of 600 requests within a second were admitted, and the next has status %d; expected 500 and 429", admitted, probed.status)
	}
}

func TestRefusedRequestsDoNotCount(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	e.flood(t, 900, func(int, int) string { return "-" }, func(int) string { return "-" })
	time.Sleep(ratelimit.Resolution.Window) // the wait of the message
	if a := e.get(t, "/abcd/x"); a.status != 302 {
		t.Errorf("status %d a second after a flood, expected 302", a.status)
	}
}
