package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

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

func (s *statementsSent) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sql := s.sql
	s.sql = nil
	return sql
}

// TestWrongKeysCostTheSame counts the work instead of its time: every key that has the form of one is refused after the same query, in the
// same words.
func TestWrongKeysCostTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	asked := new(statementsSent)
	config, err := pgxpool.ParseConfig(w.db.ControlURL)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = asked
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)

	replaced, over, suspended := w.organization(catalog.Growth), w.organization(catalog.Growth), w.organization(catalog.Growth)
	if _, err := w.store.ReplaceKey(t.Context(), replaced.ID, apikey.Server, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.ReplaceKey(t.Context(), over.ID, apikey.Server, time.Hour); err != nil {
		t.Fatal(err)
	}
	w.exec(`update api_keys set valid_until = now() - interval '1 second' where organization_id = $1 and valid_until is not null`, over.ID)
	w.exec(`update organizations set suspended = true where id = $1`, suspended.ID)

	s := testServer(io.Discard)
	handler := begin(s.observeAll(s.survive(s.answer(s.withKey(store.New(pool, testLinkBase), apikey.Server, ratelimit.LinkReads,
		func(*exchange, *http.Request, catalog.Organization) error {
			t.Error("a wrong key was let through")
			return nil
		})))))
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
		request := httptest.NewRequest("GET", "/links", nil)
		request.Header.Set("Authorization", "Bearer "+test.key)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		got := into[envelope.Envelope](t, reply{recorder.Code, recorder.Header(), recorder.Body.Bytes()})
		got.Timestamp = ""
		sql := asked.take()
		if cost == nil {
			first, cost = got, sql
			continue
		}
		if got.StatusCode != http.StatusUnauthorized || !slices.Equal(sql, cost) || len(sql) != 1 || got.Message != first.Message || got.Details != nil {
			t.Errorf("%s: %+v after %q; expected %+v after one query, the same for all", test.name, got, sql, first)
		}
	}
}
