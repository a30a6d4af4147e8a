package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/testkit"
)

// secrets are what must show nowhere, by what they are.
type secrets map[string]string

// check looks for them in what was written somewhere.
func (s secrets) check(t *testing.T, where, text string) {
	t.Helper()
	for name, secret := range s {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s shows the %s: …%.300s", where, name, text[max(0, i-100):])
		}
	}
}

// canarySecrets are recognisable, and sent with every request.
func canarySecrets() secrets {
	return secrets{
		"query": "canary-query", "cookie": "canary-cookie", "body": "canary-body", "header": "canary-header", "basic": "Y2FuYXJ5LWJhc2lj",
		"Redis password": "canary-redis", "JWKS password": "canary-jwks", "JWKS token": "canary-token",
		"signing key": strings.Repeat("ca", 32),
	}
}

// TestSecretsShowNowhere sends secrets through every way in which a request can fail, with stores that are there, that refuse and that
// are gone, and looks for them in every answer, log line and metric.
func TestSecretsShowNowhere(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	provider := w.provider()
	o := w.Tenant(catalog.Growth)
	hidden := canarySecrets()
	hidden["server key"], hidden["client key"] = *o.ServerKey, *o.ClientKey
	hidden["unknown key"] = apikey.New(apikey.Server)
	hidden["session token"] = provider.Token(*o.ExternalID, "owner")
	hidden["token below the role"] = provider.Token(*o.ExternalID, "member")
	hidden["session signature"] = hidden["session token"][strings.LastIndex(hidden["session token"], ".")+1:]
	hidden["database password"] = password(t, w.DB.ControlURL)
	keys, err := url.Parse(provider.URL)
	if err != nil {
		t.Fatal(err)
	}
	keys.RawQuery = "token=" + hidden["JWKS token"]
	redis := strings.Replace(w.Redis.URL(), "redis://", "redis://:"+hidden["Redis password"]+"@", 1) // it wants none, and refuses this one
	flags := []string{"--log-level=debug", "--trusted-proxies=127.0.0.1/32", "--portal-issuer=" + testenv.Issuer,
		"--billing-checkout-url=https://pay.example/", "--billing-signing-key=" + hidden["signing key"]}
	away := start(t, w.DB.ControlURL, redis, append(slices.Clone(flags), "--portal-jwks-url=http://127.0.0.1:1/?token="+hidden["JWKS token"])...)
	p := start(t, w.DB.ControlURL, redis, append(slices.Clone(flags), "--portal-jwks-url="+keys.String())...)
	p.AwaitReady()
	away.AwaitReady()

	statuses := make(map[int]int)
	round := func(when string, failures func(*testing.T, *process, secrets) []reply) {
		for _, a := range []*process{p, away} {
			for _, r := range failures(t, a, hidden) {
				statuses[r.Status]++
				hidden.check(t, when+", "+a.Base+": the answer "+fmt.Sprint(r.Status), fmt.Sprint(r.Header)+string(r.Body))
			}
		}
	}
	round("with all there is", failures)
	w.Exec(`revoke select on organizations from deeplink_control`)
	round("with a store that refuses", failuresOfStores)
	w.Exec(`grant select on organizations to deeplink_control`)
	closeDatabase(t, w.DB.URL)
	round("without a store", failuresOfStores)
	for _, status := range []int{400, 401, 403, 404, 405, 413, 415, 417, 422, 431, 500, 501, 503, 505} {
		if statuses[status] == 0 {
			t.Errorf("nothing was answered by %d: %v", status, statuses)
		}
	}
	for _, a := range []*process{p, away} {
		hidden.check(t, "the metrics", a.Metrics())
		a.Stop()
		hidden.check(t, "the log", a.Log.String())
		if !strings.Contains(a.Log.String(), `"status":503`) {
			t.Errorf("the log says nothing of what failed:\n%s", a.Log)
		}
	}
}

// closeDatabase ends all connections of a database and refuses new ones.
func closeDatabase(t *testing.T, address string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	conn := testkit.Connect(t, u.String())
	for _, statement := range []string{
		"alter database " + name + " with allow_connections false",
		"select pg_terminate_backend(pid) from pg_stat_activity where datname = '" + name + "'",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func password(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	secret, ok := u.User.Password()
	if !ok {
		t.Fatal("a connection string without password")
	}
	return secret
}

// failures sends requests that carry all there is to hide, by every credential to every kind of route, and returns what did not succeed.
func failures(t *testing.T, p *process, hidden secrets) (failed []reply) {
	t.Helper()
	c := p.visit("")
	carried := []string{"Cookie", "session=" + hidden["cookie"], "X-Api-Key", hidden["header"], "User-Agent", hidden["header"], "Referer", "https://x.example/?" + hidden["query"]}
	keep := func(r reply) {
		if r.Status >= 400 {
			failed = append(failed, r)
		}
	}
	credentials := []string{"", "Basic " + hidden["basic"], "Bearer " + hidden["header"], "Bearer svc_api_" + hidden["header"],
		"Bearer svc_sdk_" + hidden["header"]}
	for _, name := range []string{"server key", "client key", "unknown key", "session token", "token below the role"} {
		credentials = append(credentials, "Bearer "+hidden[name], "Bearer "+hidden[name]+"x")
	}
	for _, credential := range credentials {
		headers := append([]string{"Authorization", credential}, carried...)
		for _, target := range [][3]string{
			{"POST", "/links", `{"path":"//canary-body","channel":"canary-body","fallbackUrl":"javascript:canary-body"}`},
			{"POST", "/links", `{"path":"canary-body`},
			{"POST", "/links", `{"path":"/a","domainId":"00000000-0000-7000-8000-000000000000","title":"canary-body"}`},
			{"POST", "/links", `"` + strings.Repeat("canary-body", 8<<10) + `"`},
			{"GET", "/links/00000000-0000-7000-8000-000000000000", ""},
			{"GET", "/links", ""},
			{"POST", "/sdk/session", `{"deviceId":"canary-body canary-body","openedUrl":"canary-body"}`},
			{"POST", "/sdk/events", `{"deviceId":"a","events":[{"name":"1canary-body","properties":"canary-body"}]}`},
			{"POST", "/portal/api-keys/OTHER/regenerate", `{"graceSeconds":"canary-body"}`},
			{"PUT", "/portal/plan", `{"plan":"canary-body"}`},
			{"PUT", "/portal/plan", `{"plan":"scale"}`},
			{"PUT", "/portal/app-config", `{"ios":{"teamId":"canary-body"}}`},
			{"POST", "/portal/domains", `{"host":"canary-body.example"}`},
			{"BREW", "/links", ""},
			{"GET", "/nothing", ""},
		} {
			keep(c.Do(target[0], target[1]+"?token="+hidden["query"]+"&page="+hidden["query"], target[2], headers...))
		}
		keep(c.Do("POST", "/links", hidden["body"], append(headers, "Content-Type", "text/"+hidden["header"])...))
		// What net/http refuses by itself.
		head := "Host: x\r\nAuthorization: " + credential + "\r\nCookie: " + hidden["cookie"] + "\r\n"
		for _, raw := range []string{
			"GET /links?" + hidden["query"] + " HTTP/9.9\r\n" + head + "\r\n",
			"GET /links?" + hidden["query"] + " HTTP/1.1\r\n" + head + hidden["header"] + "\r\n\r\n",
			"GET /links?" + hidden["query"] + " HTTP/1.1\r\n" + head + "Expect: " + hidden["header"] + "\r\n\r\n",
			"GET /links?" + hidden["query"] + " HTTP/1.1\r\n" + head + "X: " + strings.Repeat(hidden["header"], 4000) + "\r\n\r\n",
			"POST /links?" + hidden["query"] + " HTTP/1.1\r\n" + head + "Transfer-Encoding: " + hidden["header"] + "\r\n\r\n",
			"POST /links?" + hidden["query"] + " HTTP/1.1\r\n" + head + "Content-Length: " + hidden["header"] + "\r\n\r\n",
			"POST /links?" + hidden["query"] + " HTTP/1.1\r\n" + head + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + hidden["body"] + "\r\n",
		} {
			for _, r := range testenv.ExchangeRaw(t, p.Control, raw, 1) {
				keep(r)
			}
		}
	}
	return failed
}

// failuresOfStores sends at once what a store has to be asked for.
func failuresOfStores(t *testing.T, p *process, hidden secrets) (failed []reply) {
	t.Helper()
	var senders sync.WaitGroup
	var mu sync.Mutex
	for path, credential := range map[string]string{"/links": "server key", "/sdk/session": "client key", "/portal/links": "session token", "/links/x": "unknown key"} {
		senders.Go(func() {
			r, err := p.client(hidden[credential]).Try("POST", path+"?token="+hidden["query"], `{"deviceId":"a","path":"canary-body"}`, "Cookie", hidden["cookie"])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			failed = append(failed, r)
		})
	}
	senders.Wait()
	return failed
}

// TestBadSettingsShowNoSecret starts with settings that are wrong, one after the other.
func TestBadSettingsShowNoSecret(t *testing.T) {
	t.Parallel()
	hidden := canarySecrets()
	good := []string{"--database-url=postgres://u:" + hidden["body"] + "@127.0.0.1:1/d", "--redis-url=redis://:" + hidden["Redis password"] + "@127.0.0.1:1", "--link-base-url=" + testLinkBase,
		"--billing-checkout-url=https://pay.example/"}
	for _, bad := range []string{
		"--database-url=mysql://u:" + hidden["body"] + "@h/d", "--database-url=postgres://u:" + hidden["body"] + "@h:port/d",
		"--database-url=host=h password=" + hidden["body"] + " sslmode=" + hidden["query"],
		"--redis-url=http://:" + hidden["Redis password"] + "@h", "--redis-url=redis://:" + hidden["Redis password"] + "@h/db", "--redis-url=:" + hidden["Redis password"],
		"--portal-jwks-url=ftp://u:" + hidden["JWKS password"] + "@h/?token=" + hidden["JWKS token"],
		"--portal-jwks-url=https://u:" + hidden["JWKS password"] + "@h/?token=" + hidden["JWKS token"],
		"--portal-jwks-url=https://u:" + hidden["JWKS password"] + "%zz@h",
		"--billing-signing-key=" + hidden["signing key"] + "x",
		"--control-database-connections=0",
	} {
		var log logBuffer
		// A program that starts nevertheless is stopped at once.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if code := run(ctx, append(append([]string{}, good...), bad, "--control-addr="+testenv.FreeAddress(t), "--control-admin-addr="+testenv.FreeAddress(t)), io.Discard, &log); code == 0 {
			t.Errorf("%s: started", bad)
		}
		cancel()
		if log.String() == "" {
			t.Errorf("%s: ended without a word", bad)
		}
		hidden.check(t, bad, log.String())
	}
}
