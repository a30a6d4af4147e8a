package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
	"deeplink/shared/qr"
	"deeplink/shared/settings"
)

// FuzzBodies sends bodies to a create and an update, through everything except the check of the key and its limit, to a real Postgres. No
// body may cause a 500 or 503.
func FuzzBodies(f *testing.F) {
	for _, hostile := range hostileBodies {
		f.Add([]byte(hostile.body))
	}
	f.Add([]byte(fullLink))
	f.Add([]byte(`{"path":"/a","tags":[],"og":{},"params":{},"domainId":null}`))

	w := newTestEnv(f)
	organization := w.Organization(catalog.Enterprise)
	link, _, err := w.Store.CreateLink(context.Background(), testenv.Actor, organization.ID, store.Unconditional, catalog.Link{Path: "/a", IsActive: true})
	if err != nil {
		f.Fatal(err)
	}
	s := w.server()
	as := func(h orgHandler) http.HandlerFunc { return s.unlocked(organization, h) }
	router := s.unlimited()
	router.Method("POST", "/links", as(s.createLink))
	router.Method("PATCH", "/links/{id}", as(s.updateLink))
	router.Method("PUT", "/links/external/{externalId}", as(s.putExternalLink))

	f.Fuzz(func(t *testing.T, body []byte) {
		for _, target := range [][2]string{{"POST", "/links"}, {"PATCH", "/links/" + link.ID}, {"PUT", "/links/external/sku-1"}} {
			request := httptest.NewRequest(target[0], target[1], strings.NewReader(string(body)))
			request.Header.Set("Content-Type", "application/json")
			recorder := httptest.NewRecorder()
			router.ServeHTTP(recorder, request)
			r := reply{Status: recorder.Code, Header: recorder.Header(), Body: recorder.Body.Bytes()}
			switch {
			case r.Status == http.StatusCreated || r.Status == http.StatusOK:
				testenv.DecodeReply[catalog.Link](t, r)
			case r.Status < 400 || r.Status >= 500:
				t.Errorf("%s %q: %s, expected no failure", target[0], body, r)
			default:
				testenv.CheckEnvelope(t, target[0], r, target[1])
			}
		}
	})
}

// unlimited returns a router with everything that runs before keys and limits.
func (s *Server) unlimited() *chi.Mux {
	router := chi.NewRouter()
	router.Use(requestID, s.accessLog, s.recoverer, timeout, s.strictPath)
	return router
}

// unlocked serves the organization without a key.
func (s *Server) unlocked(organization store.CreatedOrganization, h orgHandler) http.HandlerFunc {
	return s.handle(func(x *requestState, r *http.Request) error {
		x.actor, x.require = testenv.Actor, store.Unconditional
		return h(x, r, organization.Organization)
	})
}

// FuzzReports sends bodies to the SDK's routes in the same way. The counts in the response to a batch must add up.
func FuzzReports(f *testing.F) {
	for _, bound := range sdkBounds {
		f.Add([]byte(bound.body))
	}
	f.Add([]byte(`{"deviceId":"a","userId":"b","openedUrl":"https://%ff.example/a","events":[{"name":"a"},{"name":"b\u0000"},{"name":"c","x":"` + "\xff" + `"}]}`))
	f.Add([]byte(`{"deviceId":"a","events":[{"name":"a"}],"events":[]}`))
	w := newTestEnv(f)
	organization := w.Organization(catalog.Enterprise)
	s := w.server()
	router := s.unlimited()
	for i, h := range []sdkHandler{s.openSession, s.identifyDevice, s.clearIdentity, s.recordEvents} {
		router.Method("POST", sdkRoutes[i].path, s.unlocked(organization, withBodyTimeout(h)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, route := range sdkRoutes {
			request := httptest.NewRequest("POST", route.path, strings.NewReader(string(body)))
			request.Header.Set("Content-Type", "application/json")
			recorder := httptest.NewRecorder()
			router.ServeHTTP(recorder, request)
			r := reply{Status: recorder.Code, Header: recorder.Header(), Body: recorder.Body.Bytes()}
			switch {
			case r.Status == http.StatusOK && route.path == "/sdk/events":
				var members map[string]json.RawMessage
				var sent []json.RawMessage
				if json.Unmarshal(body, &members) != nil || json.Unmarshal(members["events"], &sent) != nil {
					t.Fatalf("%q: %s, expected 400", body, r)
				}
				if got := testenv.DecodeReply[eventsResponse](t, r); got.Accepted+got.Duplicates+len(got.Rejected) != len(sent) {
					t.Errorf("%q: %+v of %d events", body, got, len(sent))
				}
			case r.Status == http.StatusOK:
			case r.Status < 400 || r.Status >= 500:
				t.Errorf("%s %q: %s, expected no failure", route.path, body, r)
			default:
				testenv.CheckEnvelope(t, route.path, r, route.path)
			}
		}
	})
}

// FuzzOpened parses URLs: a URL that is accepted as a short URL must yield a reference that the database can look up.
func FuzzOpened(f *testing.F) {
	for _, seed := range []string{"https://go.example.com/ab12/code?a=b", "http://[::1%25eth0]/ab12/code", "https://a.example/code", "https://%ff.a/code", "HTTPS://A.Example.:1/C", "//a.example/c"} {
		f.Add(seed)
	}
	s := newShortURLs(testLinkBase, []settings.HostName{"go2.example.com"})
	f.Fuzz(func(t *testing.T, opened string) {
		place, ok := s.shortURLRef(opened)
		if !ok {
			return
		}
		if (place.OrgKey == "") == (place.Host == "") || strings.ToLower(place.Code) != place.Code || !codeSegment.MatchString(place.Code) || !utf8.ValidString(place.Host) {
			t.Errorf("%q: %+v", opened, place)
		}
	})
}

// FuzzBulk sends bodies to POST /links/bulk in the same way. With 200 there is a result for each operation.
func FuzzBulk(f *testing.F) {
	for _, operation := range malformedOperations {
		f.Add([]byte(`{"operations":[` + operation.body + `]}`))
	}
	f.Add([]byte(`{"operations":[{"op":"create","link":` + fullLink + `},{"op":"upsert","externalId":"a","link":{"path":"/a"}},{"op":"delete","externalId":"a"}],"atomic":true}`))
	w := newTestEnv(f)
	organization := w.Organization(catalog.Enterprise)
	s := w.server()
	router := s.unlimited()
	router.Method("POST", "/links/bulk", s.unlocked(organization, s.writeLinks))
	f.Fuzz(func(t *testing.T, body []byte) {
		request := httptest.NewRequest("POST", "/links/bulk", strings.NewReader(string(body)))
		request.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		router.ServeHTTP(recorder, request)
		r := reply{Status: recorder.Code, Header: recorder.Header(), Body: recorder.Body.Bytes()}
		switch {
		case r.Status == http.StatusOK:
			for i, result := range testenv.DecodeReply[bulkResponse](t, r).Results {
				if result.Index != i || result.Status >= 500 || (result.Status < 300) != (result.Error == nil) {
					t.Errorf("%q: %s, expected results without a failure", body, r)
				}
			}
		case r.Status < 400 || r.Status >= 500:
			t.Errorf("%q: %s, expected no failure", body, r)
		default:
			testenv.CheckEnvelope(t, "bulk", r, "/links/bulk")
		}
	})
}

// FuzzHeaders reads conditional headers, idempotency keys and cursors: what is accepted is within the bounds.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{`"a1"`, `a1`, `"a\"b"`, `*`, `W/"x", "y"`, `"`, `"a";b`, "\x00", `,,"a"`, `AAAA`} {
		f.Add(seed)
	}
	codec := cursorCodec{key: []byte("key"), organizationID: "o"}
	f.Fuzz(func(t *testing.T, value string) {
		if key, ok := parseKey(value); ok && (len(key) < 1 || len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r < '!' || r > '~' })) {
			t.Errorf("%q: accepted the key %q", value, key)
		}
		if tags, ok := parseTags(value); ok && !tags.any && len(tags.tags) == 0 {
			t.Errorf("%q: accepted no tag", value)
		}
		if _, ok := codec.decode(value); ok {
			t.Errorf("%q: accepted a cursor that was never made", value)
		}
	})
}

// FuzzQuery parses queries: accepted values are within the bounds, each rejected parameter is reported once.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "page=2&limit=100", "page=-1", "isActive=true&isActive=true", "search=%25&tag=%00", "channel=email&domainId=x",
		"size=64&level=H&margin=0&fg=ffffff", "size=1e3;level=x", "%zz=1", "from=2030-01-01&to=2030-02-01&timezone=America/Santiago&interval=hour",
		"class=all&outcome=redirect,landing&groupBy=country&after=AAAA", "from=2030-01-01T00:00:00.001Z&order=asc&late=true", "page=9223372036854775808"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q := decode.ReadQuery(raw)
		filter := readFilter(q)
		filter.Page = q.Integer("page", 1, 1, maxPage)
		err := q.Err()
		if err == nil && (filter.Page < 1 || filter.Page > maxPage || filter.Limit < 1 || filter.Limit > maxLimit || strings.ContainsRune(filter.Search+filter.Tag, 0)) {
			t.Errorf("%q: accepted %+v", raw, filter)
		}
		once(t, raw, err)
		options, err := readOptions(raw)
		if err == nil {
			if _, err := qr.SVG("https://go.example.com/ab12/abcdefgh", options); err != nil && err != qr.ErrSize {
				t.Errorf("%q: accepted %+v: %v", raw, options, err)
			}
		}
		once(t, raw, err)
		now := time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)
		figures, _, err := readFigureQuery(raw, nowhere, now)
		if err == nil && (!figures.From.Before(figures.To) || figures.To.Sub(figures.From) > maxClickDays*24*time.Hour || len(figures.Classes) == 0 ||
			figures.From.UnixNano()%int64(15*time.Minute) != 0 || figures.Limit < 1 || figures.Limit > maxClickLimit) {
			t.Errorf("%q: accepted %+v", raw, figures)
		}
		once(t, raw, err)
		_, _, err = readRawQuery(raw, nowhere, now)
		once(t, raw, err)
	})
}

func once(t *testing.T, raw string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	seen := map[string]bool{}
	for _, field := range err.(catalog.Invalid).Fields {
		if seen[field.Field] || field.Message == "" {
			t.Errorf("%q: %v, expected each bad parameter once", raw, err)
		}
		seen[field.Field] = true
	}
}

// FuzzPlain checks paths: an accepted path is unchanged by every normalization that a proxy might do.
func FuzzPlain(f *testing.F) {
	for _, seed := range []string{"/links", "/links/", "//links", "/links/%2e%2e/x", "/a/%2F", "/links/..", "/links/.", "/links/%5c", "", "*", "/a.b/c..d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		if !isStrict(escaped) {
			return
		}
		decoded, err := url.PathUnescape(escaped)
		if err != nil {
			return // net/http rejects it earlier
		}
		if path.Clean(escaped) != escaped || path.Clean(decoded) != decoded || strings.Count(decoded, "/") != strings.Count(escaped, "/") {
			t.Errorf("%q passed, but is %q when cleaned", escaped, path.Clean(decoded))
		}
	})
}

// FuzzRefusal parses the bytes that are written to a connection.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request: cause\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"))
	f.Add([]byte("HTTP/1.1 417 Expectation Failed\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Fuzz(func(t *testing.T, written []byte) {
		status, message, refused := parseRefusal(written)
		if refused && (status < 400 || strings.ContainsAny(message, "\r\n")) {
			t.Errorf("%q: recognized as a refusal, %d %q", written, status, message)
		}
	})
}
