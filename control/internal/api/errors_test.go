package api

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/session"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
)

var update = flag.Bool("update", false, "write the golden files")

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestEnvelopesLookAsTheyDid(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	p := w.serve()
	c := p.client(*organization.ServerKey)
	unplanned, featureless, unregistered, full := w.Organization(catalog.Growth), w.Organization(catalog.Growth), w.Organization(catalog.Growth), w.Organization(catalog.Growth)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	w.Exec(`update organizations set plan = 'free' where id = $1`, featureless.ID)
	w.Exec(`delete from app_configs where organization_id = $1`, unregistered.ID)
	w.Exec(`update link_usage set links = 50000 where organization_id = $1`, full.ID)
	c.CreateLink(`{"path":"/a","shortCode":"taken"}`)

	for _, test := range []struct {
		name               string
		c                  *client
		method, path, body string
		headers            []string
	}{
		{"400-validation", c, "POST", "/links", `{"channel":"fax","og":{"title":1},"utm":"x"}`, nil},
		{"400-json", c, "POST", "/links", `{"path":"/a",}`, nil},
		{"400-id", c, "GET", "/links/42", ``, nil},
		{"400-query", c, "GET", "/links?limit=1000&page=0", ``, nil},
		{"401", p.client(""), "GET", "/links", ``, nil},
		{"402-plan", p.client(*unplanned.ServerKey), "GET", "/links", ``, nil},
		{"402-quota", p.client(*full.ServerKey), "POST", "/links", `{"path":"/a"}`, nil},
		{"403-tier", p.client(*organization.ClientKey), "GET", "/links", ``, nil},
		{"403-feature", p.client(*featureless.ServerKey), "GET", "/links", ``, nil},
		{"404-route", c, "GET", "/nothing", ``, nil},
		{"404-link", c, "GET", "/links/00000000-0000-7000-8000-000000000000", ``, nil},
		{"404-domain", c, "POST", "/links", `{"path":"/a","domainId":"00000000-0000-7000-8000-000000000000"}`, nil},
		{"405", c, "PUT", "/links", ``, nil},
		{"409", c, "POST", "/links", `{"path":"/a","shortCode":"TAKEN"}`, nil},
		{"413", c, "POST", "/links", strings.Repeat(" ", decode.MaxBody+1), nil},
		{"415", c, "POST", "/links", `{}`, []string{"Content-Type", "", "Content-Type", "text/plain"}},
		{"428", p.client(*unregistered.ServerKey), "POST", "/links", `{"path":"/a"}`, nil},
		{"400-events", p.client(*organization.ClientKey), "POST", "/sdk/events", `{"deviceId":"phone","events":[{"nom":"open"},{"name":"open","id":"7","linkId":7}]}`, nil},
		{"400-session", p.client(*organization.ClientKey), "POST", "/sdk/session", `{"deviceId":"a phone","platform":1}`, nil},
		{"403-sdk", c, "POST", "/sdk/session", `{}`, nil},
		{"request-id", c, "GET", "/nothing?query=1", ``, []string{"X-Request-Id", "abc-123"}},
	} {
		r := test.c.Do(test.method, test.path, test.body, test.headers...)
		path, _, _ := strings.Cut(test.path, "?")
		testenv.CheckEnvelope(t, test.name, r, path)
		golden(t, test.name, timestamps.ReplaceAll(r.Body, []byte(`"timestamp":"…"`)))
	}
}

var timestamps = regexp.MustCompile(`"timestamp":"[^"]*"`)

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "envelopes", name+".json")
	got = append(bytes.TrimSpace(got), '\n')
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expected, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(expected), string(got)); diff != "" {
		t.Errorf("%s (-expected +got):\n%s", path, diff)
	}
}

func TestRequestIDIsTakenOverWhenValid(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client("")
	for _, test := range []struct {
		sent []string
		kept bool
	}{
		{nil, false},
		{[]string{"abc"}, true},
		{[]string{"A-z_0.9:/+=@"}, true},
		{[]string{strings.Repeat("a", 255)}, true},
		{[]string{strings.Repeat("a", 256)}, false},
		{[]string{"with  space"}, true},
		{[]string{`one, two: "three"; <4> \r\n %0d%0a`}, true},
		{[]string{"a\ttab"}, false},
		{[]string{"ünïcode"}, false},
		{[]string{"one", "two"}, false},
		{[]string{"one", "one"}, false},
	} {
		var headers []string
		for _, value := range test.sent {
			headers = append(headers, "X-Request-Id", value)
		}
		for _, path := range []string{"/nothing", "/healthz", "/links"} {
			r := c.Do("GET", path, "", headers...)
			id := r.Header.Values("X-Request-Id")
			if len(id) != 1 || test.kept && id[0] != test.sent[0] || !test.kept && !uuidForm.MatchString(id[0]) {
				t.Errorf("GET %s with X-Request-Id %q: header %q, expected it kept: %v", path, test.sent, id, test.kept)
			}
			if r.Status >= 400 {
				if e := testenv.DecodeReply[envelope.Envelope](t, r); test.kept && e.RequestID != test.sent[0] || !test.kept && e.RequestID != "" {
					t.Errorf("GET %s with X-Request-Id %q: requestId %q in the body", path, test.sent, e.RequestID)
				}
			}
		}
	}
}

func TestEveryUnknownRouteAndMethodIsAnEnvelope(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Growth).ServerKey)
	for _, test := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/", 404, ""},
		{"GET", "/nothing", 404, ""},
		{"BREW", "/nothing", 404, ""},
		{"GET", "//links", 404, ""},
		{"GET", "/links/", 404, ""},
		{"GET", "/links//", 404, ""},
		{"GET", "/Links", 404, ""},
		{"GET", "/links%2f", 404, ""},
		{"GET", "/%6cinks", 404, ""},
		{"GET", "/links/./", 404, ""},
		{"GET", "/x/../links", 404, ""},
		{"GET", "/links/..", 404, ""},
		{"GET", "/links/%2e%2e", 404, ""},
		{"GET", "/links/%2E./healthz", 404, ""},
		{"GET", "/links/a%2fb", 404, ""},
		{"GET", "/links/a%5Cb", 404, ""},
		{"GET", "/links/42/qr.gif", 404, ""},
		{"GET", "/links/42/qr", 404, ""},
		{"GET", "/links/42/qr.svg/", 404, ""},
		{"GET", "/docs/", 404, ""},
		{"GET", "/docs/nothing.js", 404, ""},
		{"GET", "/docs/index.html", 404, ""},
		{"GET", "/links/%00", 400, ""},
		{"GET", "/links/%ff", 400, ""},
		{"GET", "/links/a%20b", 400, ""},
		{"PUT", "/links", 405, "GET, HEAD, POST"},
		{"DELETE", "/links", 405, "GET, HEAD, POST"},
		{"OPTIONS", "/links", 405, "GET, HEAD, POST"},
		{"TRACE", "/links", 405, "GET, HEAD, POST"},
		{"BREW", "/links", 405, "GET, HEAD, POST"},
		{"POST", "/links/42", 405, "GET, HEAD, PATCH, DELETE"},
		{"POST", "/links/42/qr.svg", 405, "GET, HEAD"},
		{"POST", "/healthz", 405, "GET, HEAD"},
		{"POST", "/docs", 405, "GET, HEAD"},
		{"DELETE", "/openapi.json", 405, "GET, HEAD"},
		{"GET", "/sdk", 404, ""},
		{"POST", "/sdk/event", 404, ""},
		{"POST", "/sdk/events/", 404, ""},
		{"GET", "/sdk/events", 405, "POST"},
		{"DELETE", "/sdk/identity", 405, "POST"},
	} {
		r := c.Do(test.method, test.path, "")
		request := test.method + " " + test.path
		if r.Status != test.status || r.Header.Get("Allow") != test.allow {
			t.Errorf("%s: %s, expected %d and Allow %q", request, r, test.status, test.allow)
			continue
		}
		testenv.CheckEnvelope(t, request, r, test.path)
	}
}

func TestHeadRespondsAsGetWithoutABody(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Growth).ServerKey)
	link := c.CreateLink(`{"path":"/a"}`)
	for _, path := range []string{"/links", "/links/" + link.ID, "/links/" + link.ID + "/qr.svg", "/links/" + link.ID + "/qr.png", "/links/42",
		"/healthz", "/openapi.json", "/docs", "/docs/swagger-ui-bundle.js", "/nothing"} {
		get, head := c.Do("GET", path, ""), c.Do("HEAD", path, "")
		if get.Status != head.Status || len(head.Body) != 0 || head.Header.Get("Content-Type") != get.Header.Get("Content-Type") ||
			head.Header.Get("Content-Length") != fmt.Sprint(len(get.Body)) || head.Header.Get("ETag") != get.Header.Get("ETag") {
			t.Errorf("HEAD %s: %s, GET %d with %d bytes of %s", path, head, get.Status, len(get.Body), get.Header.Get("Content-Type"))
		}
	}
}

// TestEveryKnownErrorHasItsRow fails when an error of the store has no response in the table.
func TestEveryKnownErrorHasItsRow(t *testing.T) {
	t.Parallel()
	for err, status := range map[error]int{
		store.ErrNotFound: 404, store.ErrDomainNotFound: 404, store.ErrShortCodeTaken: 409, store.ErrQuotaExceeded: 402,
		store.ErrAppConfigMissing: 428, store.ErrUnavailable: 503, context.DeadlineExceeded: 503, store.ErrHostTaken: 409, store.ErrDomainInUse: 409,
		store.ErrDomainDefault: 409, store.ErrDomainQuota: 402, session.ErrInvalid: 401, session.ErrNoOrganization: 401, session.ErrUnavailable: 503,
		errRateLimited{time.Second}: 429, errors.New("anything else"): 500,
	} {
		if p := problemOf(fmt.Errorf("wrapped: %w", err)); p.status != status {
			t.Errorf("%v: %d, expected %d", err, p.status, status)
		}
		if p := problemOf(err); strings.Contains(p.message, "anything") {
			t.Errorf("%v: message %q shows the cause", err, p.message)
		}
	}
}

func TestPanicIsAnEnvelopeAndIsLoggedOnce(t *testing.T) {
	t.Parallel()
	log := new(logBuffer)
	s := testServer(log)
	handler := requestID(s.withAccessLog(s.recoverer(s.handle(func(*requestState, *http.Request) error { panic("secret cause") }))))
	r := record(t, handler, "GET", "/links?a=1")
	testenv.CheckEnvelope(t, "a panic", r, "/links")
	if r.Status != 500 || strings.Contains(string(r.Body), "secret") || strings.Count(log.String(), "secret cause") != 1 || !strings.Contains(log.String(), "errors_test.go") {
		t.Errorf("%s\nlog: %s\nexpected a 500 without the cause, and the cause with its stack logged once", r, log)
	}
}

func TestFailureIsAnEnvelopeAndIsLoggedOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	p := w.serve()
	c := p.client(*organization.ServerKey)
	w.Exec(`alter table links rename column title to heading`)
	r := c.Do("GET", "/links", "", "X-Request-Id", `the "failed" level=info one`)
	testenv.CheckEnvelope(t, "a failed statement", r, "/links")
	if r.Status != 500 || strings.Contains(string(r.Body), "title") || strings.Contains(string(r.Body), "SQLSTATE") {
		t.Errorf("%s, expected a 500 without the cause", r)
	}
	failures := 0
	for line := range strings.Lines(p.Log.String()) {
		if strings.Contains(line, `the \"failed\" level=info one`) && strings.Contains(line, "SQLSTATE") {
			failures++
		}
	}
	if failures != 1 {
		t.Errorf("the cause is logged %d times, expected once:\n%s", failures, p.Log)
	}
}

// TestLogShowsNothingOfARequest looks for data that must never be logged.
func TestLogShowsNothingOfARequest(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	p := w.serve()
	c := p.client(*organization.ServerKey)
	c.Do("POST", "/links?canary1=1", `{"path":"/canary2","title":"canary3"}`, "Cookie", "canary4", "User-Agent", "canary5")
	c.Do("POST", "/links", `{"canary6":1}`)
	c.Do("GET", "/links/canary7", "")
	c.Do("GET", "/canary8", "")
	phone := p.client(*organization.ClientKey)
	phone.Do("POST", "/sdk/session", `{"deviceId":"canary10","openedUrl":"https://go.example.com/ab12/canary11"}`)
	phone.Do("POST", "/sdk/identity", `{"deviceId":"canary12","userId":"canary13","traits":{"canary14":1}}`)
	phone.Do("POST", "/sdk/events", `{"deviceId":"canary15","events":[{"name":"canary16"},{"name":"canary17","id":"canary18"}]}`)
	p.client(apikey.New(apikey.Server)+"canary9").Do("GET", "/links", "")
	p.Stop()
	log := p.Log.String()
	if strings.Contains(log, "canary") || strings.Contains(log, *organization.ServerKey) {
		t.Errorf("the log shows too much:\n%s", log)
	}
	for _, expected := range []string{`"method":"POST"`, `"route":"/links"`, `"status":201`, `"ms":`, `"requestId":`, `"organizationId":"` + organization.ID, `"keyId":`, `"network":"127.0.0.0/24"`} {
		if !strings.Contains(log, expected) {
			t.Errorf("the log lacks %s:\n%s", expected, log)
		}
	}
}

func TestSuccessesDoNotCarryPropagationUnlessTheyChangeSomething(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Growth).ServerKey)
	link := c.CreateLink(`{"path":"/a"}`)
	for _, path := range []string{"/links", "/links/" + link.ID, "/links/" + link.ID + "/qr.svg"} {
		if r := c.Do("GET", path, ""); r.Header.Get(relay.Header) != "" || r.Status != http.StatusOK {
			t.Errorf("GET %s: %s, expected 200 without %s", path, r, relay.Header)
		}
	}
}
