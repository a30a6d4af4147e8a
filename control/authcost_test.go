package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
	"deeplink/shared/ratelimit"
)

// statementsSent notes what is asked of Postgres.
type statementsSent struct {
	mu  sync.Mutex
	sql []string
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *statementsSent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sql = append(s.sql, data.SQL)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*statementsSent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (s *statementsSent) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sql []string
	for _, q := range data.Batch.QueuedQueries {
		sql = append(sql, q.SQL)
	}
	s.sql = append(s.sql, strings.Join(sql, ";"))
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*statementsSent) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (*statementsSent) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (s *statementsSent) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sql := s.sql
	s.sql = nil
	return sql
}

// traced returns a store whose statements are noted.
func (w *world) traced() (*store.Store, *statementsSent) {
	w.t.Helper()
	asked := new(statementsSent)
	config, err := pgxpool.ParseConfig(w.db.ControlURL)
	if err != nil {
		w.t.Fatal(err)
	}
	config.ConnConfig.Tracer = asked
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // it would be a statement
	pool, err := pgxpool.NewWithConfig(w.t.Context(), config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return store.New(pool, testLinkBase), asked
}

// TestReadingALinkTakesOneRoundTrip looks at a good key: the link comes with it.
func TestReadingALinkTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Growth)
	link, _, err := w.store.CreateLink(t.Context(), organization.Organization, catalog.Link{Path: "/there", IsActive: true})
	if err != nil {
		t.Fatal(err)
	}
	traced, asked := w.traced()
	counter, err := ratelimit.Open(w.redis.URL(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counter.Close() })
	s := testServer(io.Discard)
	s.store, s.limiter = traced, ratelimit.New(ratelimit.NewRedis(counter, limitPrefix), ratelimit.LinkReads)
	router := chi.NewRouter()
	router.Use(begin, s.observeAll, s.survive)
	router.Get("/links/{id}", s.answer(s.withKey(s.keyAndLink, apikey.Server, ratelimit.LinkReads, s.getLink)))
	request := httptest.NewRequest("GET", "/links/"+link.ID, nil)
	request.Header.Set("Authorization", "Bearer "+*organization.ServerKey)
	recorder := httptest.NewRecorder()
	router.ServeHTTP(recorder, request)
	got := into[catalog.LinkWithDomain](t, reply{recorder.Code, recorder.Header(), recorder.Body.Bytes()})
	if sql := asked.take(); recorder.Code != http.StatusOK || got.ID != link.ID || len(sql) != 1 {
		t.Errorf("%d, link %q after %q; expected %q after one round trip", recorder.Code, got.ID, sql, link.ID)
	}
}

// TestWrongKeysCostTheSame counts the work instead of its time: every key that has the form of one is refused after the same round trip, in
// the same words.
func TestWrongKeysCostTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	traced, asked := w.traced()

	replaced, over, suspended := w.organization(catalog.Growth), w.organization(catalog.Growth), w.organization(catalog.Growth)
	if _, err := w.store.ReplaceKey(t.Context(), replaced.ID, apikey.Server, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.ReplaceKey(t.Context(), over.ID, apikey.Server, time.Hour); err != nil {
		t.Fatal(err)
	}
	w.exec(`update api_keys set valid_until = now() - interval '1 second' where organization_id = $1 and valid_until is not null`, over.ID)
	w.exec(`update organizations set suspended = true where id = $1`, suspended.ID)

	link, _, err := w.store.CreateLink(t.Context(), over.Organization, catalog.Link{Path: "/there", IsActive: true})
	if err != nil {
		t.Fatal(err)
	}

	s := testServer(io.Discard)
	s.store = traced
	for _, route := range []struct {
		pattern, path string
		look          lookup
	}{
		{"/links", "/links", keysOf(traced)},
		{"/links/{id}", "/links/" + link.ID, s.keyAndLink},
	} {
		t.Run(route.pattern, func(t *testing.T) {
			router := chi.NewRouter()
			router.Use(begin, s.observeAll, s.survive)
			router.Get(route.pattern, s.answer(s.withKey(route.look, apikey.Server, ratelimit.LinkReads,
				func(*exchange, *http.Request, catalog.Organization) error {
					t.Error("a wrong key was let through")
					return nil
				})))
			var first envelope.Envelope
			var cost []string
			for _, test := range []struct{ name, key string }{
				{"a first one, for what connecting takes", apikey.New(apikey.Server)},
				{"unknown", apikey.New(apikey.Server)},
				{"unknown, of the other tier", apikey.New(apikey.Client)},
				{"replaced", *replaced.ServerKey},
				{"over", *over.ServerKey},
				{"of a suspended organization", *suspended.ServerKey},
				{"of a suspended organization and the other tier", *suspended.ClientKey},
			} {
				request := httptest.NewRequest("GET", route.path, nil)
				request.Header.Set("Authorization", "Bearer "+test.key)
				recorder := httptest.NewRecorder()
				router.ServeHTTP(recorder, request)
				got := into[envelope.Envelope](t, reply{recorder.Code, recorder.Header(), recorder.Body.Bytes()})
				got.Timestamp = ""
				sql := asked.take()
				if cost == nil {
					first, cost = got, sql
					continue
				}
				if got.StatusCode != http.StatusUnauthorized || !slices.Equal(sql, cost) || len(sql) != 1 || got.Message != first.Message || got.Details != nil {
					t.Errorf("%s: %+v after %q; expected %+v after one round trip, the same for all", test.name, got, sql, first)
				}
			}
		})
	}
}
