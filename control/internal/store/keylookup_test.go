package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// batches counts the batches with several statements.
type batches struct{ sent atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (*batches) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*batches) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (b *batches) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if len(data.Batch.QueuedQueries) > 1 {
		b.sent.Add(1)
	}
	return ctx
}

func (*batches) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*batches) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// TestConcurrentLookupsOfKeysGetTheirOwnResults looks up keys of several organizations at the same time, so that lookups share batches. One of
// them fails, which is not the failure of the others.
func TestConcurrentLookupsOfKeysGetTheirOwnResults(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config, err := pgxpool.ParseConfig(f.database.ControlURL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8 // one batch at a time
	var sent batches
	config.ConnConfig.Tracer = &sent
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := store.New(pool, linkBase)
	type lookup struct {
		what   string
		hash   [32]byte
		target store.LinkRef
		org    string // "": the key is unknown
		link   string // "": there is none
	}
	var all []lookup
	for range 4 {
		created, _, err := f.store.CreateOrganization(t.Context(), testActor, store.NewOrganization{
			Name: "Acme", Plan: ptr(catalog.Growth), AppConfig: &catalog.AppConfig{FallbackURL: ptr("https://acme.example/")},
		})
		if err != nil {
			t.Fatal(err)
		}
		hash, org := apikey.Hash(*created.ServerKey), created.ID
		link := f.create(created.Organization, `{"path":"/a","externalId":"same"}`)
		all = append(all,
			lookup{"a key", hash, store.LinkRef{}, org, ""},
			lookup{"a link by id", hash, store.LinkRef{ID: link.ID}, org, link.ID},
			lookup{"a link by external id", hash, store.LinkRef{ExternalID: "same"}, org, link.ID},
			lookup{"an unknown link", hash, store.LinkRef{ExternalID: "other"}, org, ""},
			lookup{"an unknown key", apikey.Hash(org), store.LinkRef{ID: link.ID}, "", ""},
		)
		if len(all) > 5 {
			all = append(all, lookup{"a link of another organization", hash, store.LinkRef{ID: all[1].link}, org, ""})
		}
	}
	for round := 0; sent.sent.Load() == 0 || round < 3; round++ {
		var looking sync.WaitGroup
		for range 4 {
			for _, l := range all {
				looking.Go(func() {
					if err := check(s.AuthenticateWithLink(t.Context(), l.hash, l.target))(l.org, l.link); err != nil {
						t.Errorf("%s: %v", l.what, err)
					}
				})
			}
			looking.Go(func() {
				_, _, err := s.AuthenticateWithLink(t.Context(), all[0].hash, store.LinkRef{ID: "no UUID"})
				if err == nil || errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "uuid") {
					t.Errorf("a malformed id: %v, expected its own error", err)
				}
			})
		}
		looking.Wait()
	}
}

// check compares the result of a lookup.
func check(c store.Credential, link *catalog.LinkWithDomain, err error) func(org, id string) error {
	return func(org, id string) error {
		switch {
		case org == "":
			if !errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("%v, %v; expected ErrNotFound", c, err)
			}
		case err != nil || c.Organization.ID != org:
			return fmt.Errorf("the organization %s, %v; expected %s", c.Organization.ID, err, org)
		case (link == nil) != (id == "") || link != nil && (link.ID != id || link.OrganizationID != org || link.URL == "" || link.Domain.ID == ""):
			return fmt.Errorf("the link %+v, expected %q", link, id)
		}
		return nil
	}
}
