package api

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

	"deeplink/control/internal/keyguard"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
	"deeplink/shared/ratelimit"
)

// statementsSent records the statements that are sent to Postgres.
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

// traced returns a store whose statements are recorded.
func (w *testEnv) traced() (*store.Store, *statementsSent) {
	w.T.Helper()
	asked := new(statementsSent)
	config, err := pgxpool.ParseConfig(w.DB.ControlURL)
	if err != nil {
		w.T.Fatal(err)
	}
	config.ConnConfig.Tracer = asked
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // a ping would be an additional statement
	pool, err := pgxpool.NewWithConfig(w.T.Context(), config)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(pool.Close)
	return store.New(pool, testLinkBase), asked
}

// With a valid key, the link is read in the same round trip.
func TestReadingALinkTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	link, _, err := w.Store.CreateLink(t.Context(), testenv.Actor, organization.ID, store.Unconditional, catalog.Link{Path: "/there", IsActive: true})
	if err != nil {
		t.Fatal(err)
	}
	traced, asked := w.traced()
	counter, err := ratelimit.Open(w.Redis.URL(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counter.Close() })
	s := testServer(io.Discard)
	s.Store, s.keys, s.limiter = traced, keyguard.New(traced.ValidKeys), ratelimit.New(ratelimit.NewRedis(counter, limitPrefix), ratelimit.LinkReads)
	router := chi.NewRouter()
	router.Use(requestID, s.withAccessLog, s.recoverer)
	router.Get("/links/{id}", s.handle(s.withKey(s.keyAndLink, apikey.Server, ratelimit.LinkReads, s.getLink)))
	request := httptest.NewRequest("GET", "/links/"+link.ID, nil)
	request.Header.Set("Authorization", "Bearer "+*organization.ServerKey)
	recorder := httptest.NewRecorder()
	router.ServeHTTP(recorder, request)
	got := testenv.DecodeReply[catalog.LinkWithDomain](t, reply{Status: recorder.Code, Header: recorder.Header(), Body: recorder.Body.Bytes()})
	if sql := asked.take(); recorder.Code != http.StatusOK || got.ID != link.ID || len(sql) != 1 {
		t.Errorf("%d, link %q after %q; expected %q after one round trip", recorder.Code, got.ID, sql, link.ID)
	}
}

// TestWrongKeysCostTheSame counts queries instead of measuring time: control rejects every well-formed key after the same query, with the
// same message.
func TestWrongKeysCostTheSame(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	traced, asked := w.traced()

	replaced, over, suspended := w.Organization(catalog.Growth), w.Organization(catalog.Growth), w.Organization(catalog.Growth)
	if _, err := w.Store.ReplaceKey(t.Context(), testenv.Actor, replaced.ID, store.Unconditional, apikey.Server, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Store.ReplaceKey(t.Context(), testenv.Actor, over.ID, store.Unconditional, apikey.Server, time.Hour); err != nil {
		t.Fatal(err)
	}
	w.Exec(`update api_keys set valid_until = now() - interval '1 second' where organization_id = $1 and valid_until is not null`, over.ID)
	w.Exec(`update organizations set suspended = true where id = $1`, suspended.ID)

	link, _, err := w.Store.CreateLink(t.Context(), testenv.Actor, over.ID, store.Unconditional, catalog.Link{Path: "/there", IsActive: true})
	if err != nil {
		t.Fatal(err)
	}

	s := testServer(io.Discard)
	s.Store, s.keys = traced, keyguard.New(traced.ValidKeys)
	for _, route := range []struct {
		pattern, path string
		look          keyLookup
	}{
		{"/links", "/links", lookUpIn(traced)},
		{"/links/{id}", "/links/" + link.ID, s.keyAndLink},
	} {
		t.Run(route.pattern, func(t *testing.T) {
			router := chi.NewRouter()
			router.Use(requestID, s.withAccessLog, s.recoverer)
			router.Get(route.pattern, s.handle(s.withKey(route.look, apikey.Server, ratelimit.LinkReads,
				func(*requestState, *http.Request, catalog.Organization) error {
					t.Error("a wrong key was accepted")
					return nil
				})))
			refusal := func(key string) (got envelope.Envelope, sql []string) {
				request := httptest.NewRequest("GET", route.path, nil)
				request.Header.Set("Authorization", "Bearer "+key)
				recorder := httptest.NewRecorder()
				asked.take()
				router.ServeHTTP(recorder, request)
				got = testenv.DecodeReply[envelope.Envelope](t, reply{Status: recorder.Code, Header: recorder.Header(), Body: recorder.Body.Bytes()})
				got.Timestamp = ""
				return got, asked.take()
			}
			wrong := []struct{ name, key string }{
				{"unknown", apikey.New(apikey.Server)},
				{"unknown, of the other tier", apikey.New(apikey.Client)},
				{"replaced", *replaced.ServerKey},
				{"over", *over.ServerKey},
				{"of a suspended organization", *suspended.ServerKey},
				{"of a suspended organization and the other tier", *suspended.ClientKey},
			}
			s.keys = keyguard.New(traced.ValidKeys)
			check := func(budget string, costs func(key string) (envelope.Envelope, []string)) {
				first, cost := costs(apikey.New(apikey.Server))
				for _, test := range wrong {
					got, sql := costs(test.key)
					if got.StatusCode != http.StatusUnauthorized || !slices.Equal(sql, cost) || len(sql) != 1 || got.Message != first.Message || got.Details != nil {
						t.Errorf("%s, %s: %+v after %q; expected %+v after one query, the same for all", budget, test.name, got, sql, first)
					}
				}
			}
			_, single := refusal(apikey.New(apikey.Server)) // also for the statements of connecting
			_, single = refusal(apikey.New(apikey.Server))
			check("with lookups left", refusal)
			check("with no lookups left", func(key string) (got envelope.Envelope, sql []string) {
				for range keyguard.AddressLookups { // those that are left, and those that were refilled meanwhile
					if got, sql = refusal(key); !slices.Equal(sql, single) {
						break
					}
				}
				return got, sql
			})
		})
	}
}
