package store_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// lineTap counts the round trips on a connection: how often the client reads after it has written. It also records in which round trip the
// client sends each statement.
type lineTap struct {
	mu         sync.Mutex
	wrote      bool
	trips      int
	statements []sentStatement
}

// sentStatement is a statement with the round trip in which it was sent, from 1.
type sentStatement struct {
	sql  string
	trip int
}

type tappedConn struct {
	net.Conn
	tap *lineTap
}

func (c tappedConn) Write(b []byte) (int, error) {
	c.tap.mu.Lock()
	c.tap.wrote = true
	c.tap.mu.Unlock()
	return c.Conn.Write(b)
}

func (c tappedConn) Read(b []byte) (int, error) {
	c.tap.mu.Lock()
	if c.tap.wrote {
		c.tap.wrote = false
		c.tap.trips++
	}
	c.tap.mu.Unlock()
	return c.Conn.Read(b)
}

func (t *lineTap) note(sql string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statements = append(t.statements, sentStatement{sql, t.trips + 1})
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *lineTap) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.note(data.SQL)
	return ctx
}

func (*lineTap) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (t *lineTap) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		t.note(query.SQL)
	}
	return ctx
}

func (*lineTap) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*lineTap) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// cost is the number of round trips of a call: all of them, including the one that ends the transaction, and those from the one that locked
// the organization's links to the one that ended the transaction. Other writers of the organization wait for the latter.
type cost struct{ trips, locked int }

// of returns the cost of a call.
func (t *lineTap) of(call func()) (c cost, statements []sentStatement) {
	t.mu.Lock()
	t.trips, t.statements = 0, nil
	t.mu.Unlock()
	call()
	t.mu.Lock()
	defer t.mu.Unlock()
	locked := slices.IndexFunc(t.statements, func(s sentStatement) bool {
		return strings.Contains(s.sql, "link_usage") && strings.Contains(s.sql, "for no key update")
	})
	ended := slices.IndexFunc(t.statements, func(s sentStatement) bool { return s.sql == "commit" || s.sql == "rollback" })
	if locked < 0 || ended < locked {
		return cost{t.trips, -1}, t.statements
	}
	return cost{t.trips, t.statements[ended].trip - t.statements[locked].trip}, t.statements
}

func TestWritesOfLinksTakeTwoRoundTripsAndHoldTheLockForOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tap := new(lineTap)
	config, err := pgxpool.ParseConfig(f.database.ControlURL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	config.PingTimeout = 0
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // the ping of a connection that was idle for a second
	config.ConnConfig.Tracer = tap
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return tappedConn{c, tap}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	f.store = store.New(pool, linkBase)

	org, full := f.organization(catalog.Scale), f.organization(catalog.Free)
	for range catalog.Free.Terms().Links {
		f.create(full, `{"path": "/a"}`)
	}
	domain, _, _, err := f.store.AddDomain(t.Context(), testActor, org.ID, store.Unconditional, "go.acme.example", true)
	if err != nil {
		t.Fatal(err)
	}
	f.create(org, `{"path": "/a", "shortCode": "taken"}`)
	user := store.OperatorActor("ann")
	create := func(org catalog.Organization, body string) func() error {
		return func() error {
			_, _, err := f.store.CreateLink(t.Context(), user, org.ID, store.Unconditional, read(t, body))
			return err
		}
	}
	keys := 0
	keyed := func(o store.Operation) func() error {
		return func() error {
			keys++
			w := store.Write{OrganizationID: org.ID, Require: store.Unconditional, Key: &store.IdempotencyKey{Scope: sha256.Sum256([]byte(fmt.Sprint(keys)))}}
			_, err := f.store.WriteLink(t.Context(), user, w, o, func(catalog.LinkWithDomain, store.Result) (store.Response, error) {
				return store.Response{Status: 201, Body: []byte("{}")}, nil
			})
			return err
		}
	}
	var link catalog.Link
	update := func(patch string) func() error {
		return func() error {
			_, _, err := f.store.UpdateLink(t.Context(), user, org.ID, store.Unconditional, link.ID, readPatch(t, patch))
			return err
		}
	}
	for _, test := range []struct {
		name     string
		call     func() error
		expected error
	}{
		{"create", create(org, `{"path": "/a"}`), nil},
		{"create with a code on a domain", create(org, `{"path": "/a", "shortCode": "once", "domainId": "`+domain.ID+`"}`), nil},
		{"create with a code that is taken", create(org, `{"path": "/a", "shortCode": "taken"}`), store.ErrShortCodeTaken},
		{"create beyond the quota", create(full, `{"path": "/a"}`), store.ErrQuotaExceeded},
		{"update", update(`{"path": "/b", "title": "t", "isActive": false}`), nil},
		{"update that moves the link", update(`{"domainId": "` + domain.ID + `", "shortCode": "moved"}`), nil},
		{"update that changes nothing", update(`{"path": "/a"}`), nil},
		{"update to a code that is taken", update(`{"shortCode": "Taken"}`), store.ErrShortCodeTaken},
		{"delete", func() error {
			_, err := f.store.DeleteLink(t.Context(), user, org.ID, store.Unconditional, link.ID)
			return err
		}, nil},
		{"create with an idempotency key", keyed(store.Operation{Kind: store.CreateLink, Link: read(t, `{"path": "/a"}`)}), nil},
		{"delete of a missing link", func() error {
			_, err := f.store.DeleteLink(t.Context(), user, org.ID, store.Unconditional, org.ID)
			return err
		}, store.ErrNotFound},
	} {
		// The first call on a connection prepares its statements.
		for _, warm := range []bool{false, true} {
			link = f.create(org, `{"path": "/a"}`)
			var err error
			got, statements := tap.of(func() { err = test.call() })
			expect(t, test.name, err, test.expected)
			if expected := (cost{trips: 2, locked: 1}); warm && got != expected {
				t.Errorf("%s: %+v, expected %+v:", test.name, got, expected)
				for _, s := range statements {
					t.Logf("%d. %s", s.trip, strings.Join(strings.Fields(s.sql), " "))
				}
			}
			f.exec(`delete from links where short_code in ('once', 'moved')`)
		}
	}
}
