package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"deeplink/shared/testkit"
)

// TestSecretsShowNowhere sends secrets in every way in which a request can fail, while the database works, rejects queries and is down,
// and searches every response, log line and metric for them.
func TestSecretsShowNowhere(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	address, err := url.Parse(database.EdgeURL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := address.User.Password()
	hidden := map[string]string{
		"database password": password, "key of match tokens": tokenKey, "Redis password": "canary-redis", "query": "canary-query",
		"header": "canary-header", "cookie": "canary-cookie", "body": "canary-body", "match token": "canary-token",
	}
	check := func(where, text string) {
		t.Helper()
		for name, secret := range hidden {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s shows the %s: …%.300s", where, name, text[max(0, i-100):])
			}
		}
	}
	e := startEdgeOn(t, *database, func(c *options) {
		believe(t, c)
		if err := c.LogLevel.UnmarshalText([]byte("debug")); err != nil {
			t.Fatal(err)
		}
		c.RedisURL = "redis://:canary-redis@" + c.RedisURL[len("redis://"):] // Redis requires no password, and rejects this one
	})
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.link(organization, "x", nil)
	r.link(organization, "gone", map[string]any{"is_active": false})

	const host = "Host: go.example.com\r\n"
	const carried = "Authorization: Bearer canary-header\r\nCookie: canary-cookie\r\nUser-Agent: canary-header\r\nReferer: https://x/?canary-query\r\nX-Api-Key: canary-header\r\n"
	statuses := make(map[int]int)
	fail := func(begin, rest string) {
		t.Helper()
		a, err := roundTrip(e.addr, begin+carried+"Connection: close\r\n"+rest)
		if err != nil {
			t.Errorf("%.200q: %v", begin, err)
			return
		}
		statuses[a.status]++
		check(fmt.Sprintf("%.100q: the answer %d", begin, a.status), fmt.Sprint(a.header)+a.body)
	}
	body := func(text string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text) }
	const asJSON = "Content-Type: application/json\r\n"
	for _, path := range []string{"/nothing", "/abcd/nothing", "/abcd/nothing/data", "/abcd/gone", "/abc/nothing", "/.well-known/assetlinks.json", "/match"} {
		for _, method := range []string{"GET", "HEAD", "BREW"} {
			fail(method+" "+path+"?mt=canary-token&a=canary-query HTTP/1.1\r\n"+host, "\r\n")
		}
	}
	post := "POST /match?canary-query HTTP/1.1\r\n" + host
	for _, sent := range []string{
		`{"clipboardToken":"canary-token` + strings.Repeat("a", 200) + `"}`, `{"clipboardToken":5,"deviceId":"` + strings.Repeat("canary-body", 20) + `"}`,
		`{"canary-body`, `"canary-body"`, strings.Repeat("canary-body", 2000),
	} {
		fail(post, asJSON+body(sent))
	}
	fail(post, "Content-Type: text/canary-header\r\n"+body("canary-body"))
	fail(post, asJSON+"Expect: canary-header\r\n"+body("canary-body"))
	fail(post, asJSON+"Transfer-Encoding: chunked\r\n\r\ncanary-body\r\n")
	fail(post, asJSON+"Transfer-Encoding: canary-header\r\n\r\ncanary-body\r\n")
	fail(post, "Content-Length: canary-header\r\n\r\n")
	fail("GET /abcd/x?canary-query HTTP/9.9\r\n"+host, "\r\n")
	fail("GET /abcd/x?canary-query canary-query HTTP/1.1\r\n"+host, "\r\n")
	fail("GET /abcd/x?canary-query HTTP/1.1\r\n"+host+"canary-header\r\n", "\r\n")
	fail("GET /abcd/x?canary-query HTTP/1.1\r\n"+host, "X: "+strings.Repeat("canary-header", 1000)+"\r\n\r\n")
	fail("GET /abcd/x?"+strings.Repeat("canary-query", 400)+" HTTP/1.1\r\n"+host, "\r\n")

	r.exec(`revoke select on app_configs from deeplink_edge`)
	fail("GET /abcd/x2?canary-query HTTP/1.1\r\n"+host, "\r\n")
	r.exec(`grant select on app_configs to deeplink_edge`)
	u, err := url.Parse(database.URL)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	outside := rows{t, testkit.Connect(t, u.String())}
	outside.exec("alter database " + name + " with allow_connections false")
	outside.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = '" + name + "'")
	until(t, "the database is unreachable", func() bool {
		fail("GET /abcd/x3?canary-query HTTP/1.1\r\n"+host, "\r\n")
		return statuses[http.StatusServiceUnavailable] > 0
	})
	for _, status := range []int{400, 404, 405, 410, 413, 414, 415, 417, 431, 500, 501, 503, 505} {
		if statuses[status] == 0 {
			t.Errorf("no response had status %d: %v", status, statuses)
		}
	}
	answer, err := http.Get("http://" + e.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	metrics, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	check("the metrics", string(metrics))
	e.stop()
	<-e.ended
	check("the log", e.log.String())
	if log := e.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "level=DEBUG") {
		t.Errorf("the log lacks the failure:\n%s", log)
	}
}
