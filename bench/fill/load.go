package fill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/schollz/progressbar/v3"

	"deeplink/shared/catalog"
)

const (
	// fillBatch is how many links one transaction creates: enough to make the cost of a transaction negligible, few enough that other
	// writers wait a second or two for its locks.
	fillBatch = 50_000
	// fillTries bounds how often a batch draws other codes. With a million links in an organization, one batch in ten draws a code that
	// exists.
	fillTries = 8
	// edgePatience is how long to wait for edges: by then, edges that reach PostgreSQL have polled, and the others have no lease.
	edgePatience = lease + lease/100 + 10*time.Millisecond
	// lease is the default of EDGE_LEASE.
	lease = 2 * time.Second
)

// loader copies links into the table. All triggers fire: they count the links for the quotas, assign versions and stamps, and record what
// the edges must drop. A statement that affects thousands of codes records the organizations instead, and one that affects very many
// organizations records everything. Edges that run meanwhile therefore drop much of their cache with each batch, but never serve a 404 for
// an existing link.
type loader struct {
	owner   *pgx.Conn
	tenants []*Tenancy
	keys    io.Writer
	audit   bool
	made    *progressbar.ProgressBar

	n   int    // number of created links
	xid uint64 // id of the last transaction
}

// madeLink is a link of the current batch.
type madeLink struct {
	tenant *Tenancy
	id     [16]byte
	code   string
}

// load creates the links of all tenants in random order: links of an organization are scattered over the table, as when many organizations
// create them day by day.
func (l *loader) load(ctx context.Context) error {
	var order []int32
	for i, t := range l.tenants {
		order = append(order, slices.Repeat([]int32{int32(i)}, t.Links)...)
	}
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for batch := range slices.Chunk(order, fillBatch) {
		made, err := l.tryBatch(ctx, batch)
		if err != nil {
			return err
		}
		for _, link := range made {
			if _, err := fmt.Fprintf(l.keys, "/%s/%s\n", link.tenant.Key, link.code); err != nil {
				return fmt.Errorf("write the keys: %w", err)
			}
		}
		l.n += len(batch)
		_ = l.made.Add(len(batch)) // a failed write to the terminal is harmless
	}
	_ = l.made.Finish()
	return nil
}

// tryBatch creates a link for each tenant, and retries with other codes if one already exists.
func (l *loader) tryBatch(ctx context.Context, batch []int32) (made []madeLink, err error) {
	for range fillTries {
		err = pgx.BeginFunc(ctx, l.owner, func(tx pgx.Tx) error {
			made, err = l.makeBatch(ctx, tx, batch)
			return err
		})
		if failed, ok := errors.AsType[*pgconn.PgError](err); !ok || failed.ConstraintName != "links_short_code" {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make links: %w", err)
	}
	return made, nil
}

func (l *loader) makeBatch(ctx context.Context, tx pgx.Tx, batch []int32) ([]madeLink, error) {
	if err := l.lock(ctx, tx, batch); err != nil {
		return nil, err
	}
	made, err := l.copyLinks(ctx, tx, batch)
	if err != nil {
		return nil, err
	}
	if l.audit {
		if err := copyEntries(ctx, tx, made); err != nil {
			return nil, err
		}
	}
	return made, tx.QueryRow(ctx, `select pg_current_xact_id()`).Scan(&l.xid)
}

// lock starts as every write of links does: it locks the counters in the same order, or writers would deadlock. The counts are then exact.
func (l *loader) lock(ctx context.Context, tx pgx.Tx, batch []int32) error {
	more := make(map[[16]byte]int64)
	tenants := make(map[[16]byte]*Tenancy)
	var ids [][16]byte
	for _, i := range batch {
		t := l.tenants[i]
		if tenants[t.ID] == nil {
			tenants[t.ID] = t
			ids = append(ids, t.ID)
		}
		more[t.ID]++
	}
	rows, _ := tx.Query(ctx, `select organization_id, links from link_usage where organization_id = any ($1) order by 1 for no key update`, ids)
	var id [16]byte
	var has int64
	_, err := pgx.ForEachRow(rows, []any{&id, &has}, func() error {
		if room, bounded := tenants[id].room(has); bounded && more[id] > room {
			return fmt.Errorf("%w: the plan of %s has room for %d", errTenancy, tenants[id].Key, room)
		}
		return nil
	})
	return err
}

var linkColumns = []string{
	"id", "organization_id", "domain_id", "short_code", "path", "channel", "utm_source", "utm_medium", "utm_campaign", "utm_term",
	"utm_content", "fallback_url", "og_title", "og_description", "og_image_url", "title", "tags", "expiry", "template_id", "params",
	"is_active",
}

func (l *loader) copyLinks(ctx context.Context, tx pgx.Tx, batch []int32) (made []madeLink, err error) {
	now := time.Now()
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"links"}, linkColumns, pgx.CopyFromFunc(func() ([]any, error) {
		if len(made) == len(batch) {
			return nil, nil
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		t := l.tenants[batch[len(made)]]
		link := newFilledLink(l.n+len(made), now)
		made = append(made, madeLink{t, id, link.ShortCode})
		return linkRow(t, id, link), nil
	}))
	return made, err
}

func linkRow(t *Tenancy, id [16]byte, l catalog.Link) []any {
	var og catalog.OpenGraph
	if l.OG != nil {
		og = *l.OG
	}
	var expiry *time.Time
	if l.Expiry != nil {
		expiry = &l.Expiry.Time
	}
	return []any{id, t.ID, t.domain, l.ShortCode, l.Path, l.Channel, l.UTMSource, l.UTMMedium, l.UTMCampaign, l.UTMTerm, l.UTMContent,
		l.FallbackURL, og.Title, og.Description, og.ImageURL, l.Title, l.Tags, expiry, l.TemplateID, []byte(l.Params), l.IsActive}
}

// copyEntries adds audit entries for the links, with an operator as the actor.
func copyEntries(ctx context.Context, tx pgx.Tx, made []madeLink) error {
	i := 0
	columns := []string{"id", "organization_id", "actor_type", "actor_id", "action", "target_type", "target_id", "detail"}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"audit_log"}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		if i == len(made) {
			return nil, nil
		}
		link := made[i]
		i++
		id, err := uuid.NewV7()
		return []any{[16]byte(id), link.tenant.ID, "operator", "bench", "link.create", "link", link.id,
			[]byte(`{"shortCode": "` + link.code + `"}`)}, err
	}))
	return err
}

// awaitEdges waits until every edge has applied the last transaction, and returns those that have not. These may serve older entries for at
// most EDGE_STALE_IF_ERROR.
func (l *loader) awaitEdges(ctx context.Context) (unheard []string, err error) {
	for deadline, last := time.Now().Add(edgePatience), false; ; pause(ctx, 20*time.Millisecond) {
		rows, _ := l.owner.Query(ctx, `
			select slot from edges where applied is null or not pg_visible_in_snapshot($1::xid8, applied) order by 1`, l.xid)
		if unheard, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return nil, fmt.Errorf("wait for the edges: %w", err)
		}
		if len(unheard) == 0 || last {
			return unheard, nil
		}
		// If the whole machine stalled, the poll of an edge may be late too.
		if last = time.Now().After(deadline); last {
			pause(ctx, lease/4)
		}
	}
}

// pause returns after span or when ctx ends.
func pause(ctx context.Context, span time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(span):
	}
}
