package main

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"deeplink/edge/internal/matchtoken"
	"deeplink/shared/catalog"
	"deeplink/shared/devservers"
	"deeplink/shared/settings"
	"deeplink/shared/testkit"
)

const (
	tokenKey   = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	retiredKey = "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
)

// startMatching starts an edge that has a key and trusts X-Forwarded-For, so that no request of a test exceeds the rate limit.
func startMatching(t *testing.T) *testEdge {
	t.Helper()
	return startEdge(t, func(c *options) { believe(t, c) })
}

func believe(t *testing.T, c *options) {
	t.Helper()
	c.MatchTokenKeys = tokenKey
	if err := c.TrustedProxies.UnmarshalText([]byte("127.0.0.1")); err != nil {
		t.Fatal(err)
	}
}

// twoEdges starts two edges with the same database and Redis.
func twoEdges(t *testing.T, database testkit.Database, hints *devservers.Redis) (both [2]*testEdge) {
	t.Helper()
	for i := range both {
		both[i] = startEdgeOn(t, database, func(c *options) {
			believe(t, c)
			c.RedisURL = settings.Redis(hints.URL())
		})
	}
	return both
}

// mint returns a token that was made with this key.
func mint(t *testing.T, key, link string, at time.Time) string {
	t.Helper()
	keys, err := matchtoken.ParseKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(keys.Append(nil, uuid.MustParse(link), at))
}

func fresh(t *testing.T, link string) string { return mint(t, tokenKey, link, time.Now()) }

var posts atomic.Int64

// post sends a body to /match, from an address that was not used before.
func (e *testEdge) post(t testing.TB, body string, header ...string) answer {
	t.Helper()
	a, err := roundTrip(e.addr, postRequest(body, header...))
	if err != nil {
		t.Fatalf("posted %.300q: %v", body, err)
	}
	return a
}

func postRequest(body string, header ...string) string {
	n := posts.Add(1)
	header = append([]string{
		fmt.Sprintf("X-Forwarded-For: 10.%d.%d.%d", n>>16, n>>8&255, n&255), "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)),
	}, header...)
	return request("POST", "/match", header...) + body
}

func clipboard(token string) string { return `{"clipboardToken":"` + token + `"}` }

func clipboardOf(token, device string) string {
	return `{"clipboardToken":"` + token + `","deviceId":"` + device + `"}`
}

const nothing = `{"matched":false,"matchType":null,"link":null}`

func isMatch(a answer) bool {
	return a.status == 200 && strings.HasPrefix(a.body, `{"matched":true,`)
}

// checkNothing requires the response for a token without a match.
func checkNothing(t *testing.T, why string, a answer) {
	t.Helper()
	if a.status != 200 || a.body != nothing || a.header.Get("Content-Type") != "application/json" || a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%s: %d %v %s, expected 200 %s", why, a.status, a.header, a.body, nothing)
	}
	checkHeaders(t, a)
}

func (r rows) spent() (n string) {
	r.t.Helper()
	r.query(&n, `select count(*)::text from match_redemptions`)
	return n
}

func TestTokenMatchesItsLinkOnce(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(c *options) {
		believe(t, c)
		c.LogLevel = slog.LevelDebug
	})
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	full := r.link(organization, "Full", map[string]any{
		"path": "/items/1?a=<b>&c", "channel": "email", "utm_source": "s", "fallback_url": "https://shop.example.com/?a&b", "og_title": "Title",
		"expiry": "2199-01-02T03:04:05.678Z", "params": `{"n": 1.0}`, "title": "internal", "tags": []string{"internal"},
	})
	custom := r.link(organization, "Custom", map[string]any{"domain_id": r.domain(organization, "links.customer.example", "verified")})
	click := time.Now().Add(-time.Hour).Truncate(time.Millisecond)

	for _, test := range []struct{ link, data, host, to, body, by string }{
		{full, "/abcd/full/data", "go.example.com", "go.example.com", `{"clipboardToken":"%s"}`, "clipboard"},
		{custom, "/custom/data", "links.customer.example", "go.example.com", `{"installReferrer":"mt=%s"}`, "install_referrer"},
		{full, "/abcd/full/data", "go.example.com", "links.customer.example", `{"installReferrer":"utm_source=x&mt=%s&mt=y"}`, "install_referrer"},
		{full, "/abcd/full/data", "go.example.com", "unknown.example", `{"installReferrer":"utm_source%%3Dx%%26mt%%3D%s"}`, "install_referrer"},
		{full, "/abcd/full/data", "go.example.com", "no_host!", `{"installReferrer":"%%zz&mt=%s"}`, "install_referrer"},
		{full, "/abcd/full/data", "go.example.com", "go.example.com", `{"clipboardToken":"other text","installReferrer":"mt=%s"}`, "install_referrer"},
		{full, "/abcd/full/data", "go.example.com", "go.example.com", ` {"clipboardToken":"%s","installReferrer":"mt=x","deviceId":"d","platform":"ios","appVersion":"1.2","more":{"a":[null]}}`, "clipboard"},
	} {
		body := fmt.Sprintf(test.body, mint(t, tokenKey, test.link, click))
		before := time.Now()
		a := e.post(t, body, "Host: "+test.to)
		checkHeaders(t, a)
		var matchedAt string
		r.query(&matchedAt, `select to_char(max(matched_at) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') from match_redemptions`)
		want := `{"matched":true,"matchType":"` + test.by + `","link":` + e.get(t, test.data, "Host: "+test.host).body +
			`,"clickedAt":"` + click.UTC().Format(catalog.TimeFormat) + `","matchedAt":"` + matchedAt + `"}`
		if diff := cmp.Diff(want, a.body); diff != "" || a.status != 200 {
			t.Errorf("%s: %d (-expected +got):\n%s", body, a.status, diff)
		}
		if at, err := time.Parse(catalog.TimeFormat, matchedAt); err != nil || at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("%s: matched at %s, expected now", body, matchedAt)
		}
		if a.header.Get("Content-Type") != "application/json" || a.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: header %v", body, a.header)
		}
		if !strings.Contains(body, "deviceId") {
			checkNothing(t, body+" again", e.post(t, body))
		}
	}
	metrics := e.metrics(t)
	if metrics[`deeplink_edge_requests_total{kind="match",status="200"}`] != "13" || metrics[`deeplink_edge_match_tokens_total{result="matched"}`] != "7" {
		t.Errorf("metrics: %s responses, %s matches; expected 13 and 7",
			metrics[`deeplink_edge_requests_total{kind="match",status="200"}`], metrics[`deeplink_edge_match_tokens_total{result="matched"}`])
	}
	// A token starts with its version. No part of it may be in the log.
	if log := e.log.String(); !strings.Contains(log, "kind=match status=200") || strings.Contains(log, "AQ") || len(warnings(log)) > 0 {
		t.Errorf("logged:\n%s", log)
	}
}

// postAll sends all bodies concurrently, alternating between two edges.
func postAll(t *testing.T, edges [2]*testEdge, bodies []string) []answer {
	t.Helper()
	answers := make([]answer, len(bodies))
	var all sync.WaitGroup
	for i, body := range bodies {
		all.Go(func() {
			var err error
			if answers[i], err = roundTrip(edges[i%2].addr, postRequest(body)); err != nil {
				t.Errorf("posted %s: %v", body, err)
			}
		})
	}
	all.Wait()
	return answers
}

func TestOneOf200ConcurrentPostsToTwoEdgesMatches(t *testing.T) {
	t.Parallel()
	edges := twoEdges(t, *testkit.NewDatabase(t), testkit.NewRedis(t))
	r := rows{t, edges[0].owner}
	link := r.link(r.organization("abcd"), "x", nil)
	for _, test := range []struct {
		name   string
		body   func(token string, i int) string
		wanted int
	}{
		{"devices without a name", func(token string, _ int) string { return clipboard(token) }, 1},
		{"as many devices", func(token string, i int) string { return clipboardOf(token, fmt.Sprint("device-", i)) }, 1},
		{"referrers", func(token string, _ int) string { return `{"installReferrer":"mt%3D` + token + `"}` }, 1},
		{"one device", func(token string, _ int) string { return clipboardOf(token, "one") }, 200},
	} {
		token := fresh(t, link)
		bodies := make([]string, 200)
		for i := range bodies {
			bodies[i] = test.body(token, i)
		}
		matched := make(map[string]int)
		for _, a := range postAll(t, edges, bodies) {
			if isMatch(a) {
				matched[a.body]++
			} else {
				checkNothing(t, test.name, a)
			}
		}
		total := 0
		for _, n := range matched {
			total += n
		}
		if total != test.wanted || len(matched) != 1 {
			t.Errorf("%s: %d of 200 matched, with %d answers; expected %d with one", test.name, total, len(matched), test.wanted)
		}
	}
	if spent := r.spent(); spent != "4" {
		t.Errorf("%s tokens are spent, expected 4", spent)
	}
}

func TestSpentTokenStaysSpentAcrossRestarts(t *testing.T) {
	t.Parallel()
	server, hints := testkit.NewPostgres(t), testkit.NewRedis(t)
	edges := twoEdges(t, server.Database, hints)
	r := rows{t, edges[0].owner}
	link := r.link(r.organization("abcd"), "x", nil)
	token, later := fresh(t, link), fresh(t, link)
	first := edges[0].post(t, clipboardOf(token, "a"))
	if !isMatch(first) {
		t.Fatalf("%d %s", first.status, first.body)
	}

	// An immediate stop stands for a loss of power: fsync is off in tests in either case.
	if err := server.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	a := edges[1].post(t, clipboard(later))
	if a.status != 503 || a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("without PostgreSQL: %d %s, expected 503", a.status, a.body)
	}
	checkEnvelope(t, a, "/match")
	checkHeaders(t, a)
	checkNothing(t, "a forged token without PostgreSQL", edges[1].post(t, clipboard("AQ"+strings.Repeat("A", 72))))
	for _, e := range edges {
		e.stop()
		<-e.ended
	}
	if err := hints.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, start := range []error{server.Start(t.Context()), hints.Start(t.Context())} {
		if start != nil {
			t.Fatal(start)
		}
	}

	edges = twoEdges(t, server.Database, hints)
	for _, e := range edges {
		checkNothing(t, "spent before the restart", e.post(t, clipboardOf(token, "b")))
		if again := e.post(t, clipboardOf(token, "a")); again.body != first.body {
			t.Errorf("the device retries: %d %s, expected %s", again.status, again.body, first.body)
		}
	}
	if a := edges[0].post(t, clipboard(later)); !isMatch(a) {
		t.Errorf("the token that was presented without PostgreSQL: %d %s, expected a match", a.status, a.body)
	}
}

func TestAllBadTokensGetTheSameResponse(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(c *options) {
		believe(t, c)
		c.MatchTokenKeys = tokenKey + "," + retiredKey
	})
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	link := r.link(organization, "x", nil)
	token := fresh(t, link)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	another := strings.Repeat("ab", 32)
	bad := map[string]string{
		"forged":              mint(t, another, link, time.Now()),
		"25 h old":            mint(t, tokenKey, link, time.Now().Add(-25*time.Hour)),
		"an hour ahead":       mint(t, tokenKey, link, time.Now().Add(time.Hour)),
		"of an unknown link":  fresh(t, uuid.NewString()),
		"of no link":          fresh(t, uuid.Nil.String()),
		"the short URL":       "https://go.example.com/abcd/x?mt=" + token[:66],
		"with its name":       "mt=" + token,
		"padded":              token + "==",
		"followed by a space": token + " ",
		"junk":                "x",
		"not ASCII":           strings.Repeat("ü", 74),
		"100 characters":      strings.Repeat("A", 100),
	}
	for n := 1; n < len(token); n += 7 {
		bad[fmt.Sprintf("cut to %d", n)] = token[:n]
		bad[fmt.Sprintf("cut by %d", n)] = token[n:]
	}
	for bit := range 8 * len(raw) {
		flipped := append([]byte(nil), raw...)
		flipped[bit/8] ^= 1 << (bit % 8)
		bad[fmt.Sprintf("bit %d flipped", bit)] = base64.RawURLEncoding.EncodeToString(flipped)
	}
	for name, text := range bad {
		checkNothing(t, name, e.post(t, clipboard(text)))
	}
	for name, body := range map[string]string{
		"referrer without a token": `{"installReferrer":"utm_source=google-play&utm_medium=organic"}`,
		"empty referrer":           `{"installReferrer":""}`,
		"referrer of junk":         `{"installReferrer":"%zz%"}`,
		"bare token as referrer":   `{"installReferrer":"` + token + `"}`,
		"token named otherwise":    `{"installReferrer":"MT=` + token + `"}`,
		"forged in both":           `{"clipboardToken":"` + bad["forged"] + `","installReferrer":"mt=` + bad["25 h old"] + `"}`,
	} {
		checkNothing(t, name, e.post(t, body))
	}
	if spent := r.spent(); spent != "0" {
		t.Errorf("%s tokens are spent, expected none", spent)
	}
	// The key belonged to this edge and was removed.
	old := mint(t, retiredKey, link, time.Now())
	if a := e.post(t, clipboard(mint(t, retiredKey, link, time.Now()))); !isMatch(a) {
		t.Errorf("the second key: %d %s, expected a match", a.status, a.body)
	}
	if a := e.post(t, clipboard(token)); !isMatch(a) {
		t.Errorf("the good token: %d %s, expected a match", a.status, a.body)
	}
	checkNothing(t, "spent", e.post(t, clipboard(token)))
	without := startEdgeOn(t, testkit.Database{URL: e.owner.Config().ConnString(), EdgeURL: string(e.settings.DatabaseURL)}, func(c *options) { believe(t, c) })
	checkNothing(t, "retired key", without.post(t, clipboard(old)))
	if a := e.post(t, clipboard(old)); !isMatch(a) {
		t.Errorf("where the key is not retired: %d %s, expected a match", a.status, a.body)
	}
}

func TestOnlyPOSTSpends(t *testing.T) {
	t.Parallel()
	e := startMatching(t)
	r := rows{t, e.owner}
	link := r.link(r.organization("abcd"), "x", nil)
	token := fresh(t, link)
	body := clipboard(token)
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "post", "BREW"} {
		for _, host := range []string{"go.example.com", "links.customer.example"} {
			a := e.send(t, request(method, "/match?mt="+token+"&clipboardToken="+token, "Host: "+host, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)))+body)
			if a.header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%s: header %v", method, a.header)
			}
			checkHeaders(t, a)
			if method == "OPTIONS" {
				if a.status != 204 || a.header.Get("Access-Control-Allow-Methods") != "POST" || a.header.Get("Access-Control-Allow-Headers") != "*" {
					t.Errorf("OPTIONS: %d %v", a.status, a.header)
				}
				continue
			}
			if a.status != 405 || a.header.Get("Allow") != "POST, OPTIONS" {
				t.Errorf("%s: %d, Allow %q; expected 405 and POST, OPTIONS", method, a.status, a.header.Get("Allow"))
			}
			if method != http.MethodHead {
				checkEnvelope(t, a, "/match")
			}
		}
	}
	if spent := r.spent(); spent != "0" {
		t.Errorf("%s tokens are spent, expected none", spent)
	}
	if a := e.post(t, body); !isMatch(a) {
		t.Errorf("POST: %d %s, expected a match", a.status, a.body)
	}
}
