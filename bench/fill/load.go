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
	// fillBatch is how many links one transaction makes: enough that its own cost does not count, few enough that those who wait for
	// its locks wait a second or two.
	fillBatch = 50_000
	// fillTries bounds how often other codes are drawn for a batch. With a million links in an organization, one batch in ten meets a
	// code that is taken.
	fillTries = 8
	// edgePatience is how long edges are waited for: those that can reach PostgreSQL have polled by then, and those that cannot have
	// no lease any more.
	edgePatience = lease + lease/100 + 10*time.Millisecond
	// lease is the default of EDGE_LEASE.
	lease = 2 * time.Second
)

// loader copies links into the table. All triggers fire: they count the links for the quotas, give them their versions and stamps, and
// tell the edges what to forget. One statement that touches thousands of codes names the organizations instead, and one of very many
// organizations everything, so that edges which run meanwhile begin anew with each batch, but answer 404 for no link that is there.
type loader struct {
	owner   *pgx.Conn
	tenants []*Tenancy
	keys    io.Writer
	audit   bool
	made    *progressbar.ProgressBar

	n   int    // links made
	xid uint64 // the last transaction
}

// madeLink is a link of the batch that is being made.
type madeLink struct {
	tenant *Tenancy
	id     [16]byte
	code   string
}

// load makes the links of all tenants in an order without order: those of an organization lie apart in the table, as they do where
// many organizations make them day by day.
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
		_ = l.made.Add(len(batch)) // a terminal that cannot be written to changes nothing
	}
	_ = l.made.Finish()
	return nil
}

// tryBatch makes a link for each tenant named, again with other codes when one was taken.
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

// lock begins as every write of links does: with the counters, always in the same order, or writers would deadlock. What is counted
// then is exact.
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

// copyEntries enters the links in the audit trail, as an operator's.
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

// awaitEdges waits until every edge has applied what the last transaction changed, and returns those that were not heard of. What they
// hold from before they may answer for EDGE_STALE_IF_ERROR at most.
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
		// Where the whole machine stood still, the poll of an edge may be due as well.
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
