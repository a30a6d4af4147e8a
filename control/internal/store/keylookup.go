package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/batch"
	"deeplink/shared/catalog"
)

const (
	// connectionsPerSender limits batches of lookups to one in eight connections, as in the edge: with more senders each batch would hold fewer
	// lookups and cost Postgres more.
	connectionsPerSender = 8
	// maxLookups is the maximum number of lookups in a batch.
	maxLookups = 64
	// lookupTimeout bounds a batch with several lookups, which does not end with the request of any of them. It is half of the time of a read.
	lookupTimeout = 5 * time.Second
)

// keyLookups looks up API keys, and links of their organizations. Every request of a backend begins with a lookup, so concurrent ones share
// a round trip.
type keyLookups struct {
	store   *Store
	batcher *batch.Batcher[*keyLookup]
}

func newKeyLookups(s *Store, connections int) *keyLookups {
	k := &keyLookups{store: s}
	k.batcher = batch.New(connections/connectionsPerSender, maxLookups, k.send)
	return k
}

// keyLookup is one lookup and its result. target is the zero LinkRef if no link is to be read.
type keyLookup struct {
	hash       [32]byte
	target     LinkRef
	credential Credential
	link       *catalog.LinkWithDomain
	err        error
	// shared: err may be that of another lookup in the batch.
	shared bool
}

// errUnsent is the error of a lookup until it has a result.
var errUnsent = errors.New("the lookup was not sent")

const lookUpWhat = "look up an API key"

// do looks up a key. Errors: ErrNotFound for a key that is unknown or no longer valid, ErrUnavailable.
func (k *keyLookups) do(ctx context.Context, hash [32]byte, target LinkRef) (Credential, *catalog.LinkWithDomain, error) {
	l := &keyLookup{hash: hash, target: target, err: errUnsent}
	if err := k.batcher.Do(ctx, l); err != nil {
		return Credential{}, nil, translate(lookUpWhat, err)
	}
	if l.shared && l.err != nil && !errors.Is(l.err, ErrNotFound) && !errors.Is(l.err, ErrUnavailable) {
		k.sendAlone(ctx, l)
	}
	if l.err != nil {
		return Credential{}, nil, l.err
	}
	return l.credential, l.link, nil
}

func (k *keyLookups) send(ctx context.Context, all []*keyLookup) {
	if len(all) == 1 {
		k.sendAlone(ctx, all[0])
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	err := retry(lookUpWhat, func() error { return k.sendTogether(ctx, all) })
	for _, l := range all {
		if l.shared = true; l.err != nil && !errors.Is(l.err, ErrNotFound) {
			l.err = err
		}
	}
}

func (k *keyLookups) sendAlone(ctx context.Context, l *keyLookup) {
	l.err = retry(lookUpWhat, func() error {
		sql, arguments := l.statement()
		rows, err := k.store.pool.Query(ctx, sql, arguments...)
		if err != nil {
			return err
		}
		return k.scan(rows, l)
	})
}

// sendTogether runs all lookups in one round trip. Each is a statement of its own, with a snapshot taken when it starts. The error is that of
// the first failure, after which Postgres skips the rest.
func (k *keyLookups) sendTogether(ctx context.Context, all []*keyLookup) error {
	var statements pgx.Batch
	for _, l := range all {
		sql, arguments := l.statement()
		statements.Queue(sql, arguments...)
	}
	results := k.store.pool.SendBatch(ctx, &statements)
	var failed error
	for _, l := range all {
		rows, err := results.Query()
		if err == nil {
			err = k.scan(rows, l)
		}
		l.err = err
		if failed == nil && !errors.Is(err, ErrNotFound) {
			failed = err
		}
	}
	return errors.Join(failed, results.Close())
}

// statement returns the statement of the lookup.
func (l *keyLookup) statement() (sql string, arguments []any) {
	switch {
	case l.target.ID != "":
		return keyAndLinkSQL, []any{l.hash[:], l.target.ID}
	case l.target.ExternalID != "":
		return keyAndLinkByExternalIDSQL, []any{l.hash[:], l.target.ExternalID}
	}
	return authenticateSQL, []any{l.hash[:]}
}

// scan reads the result of a lookup and closes it. A missing row is not an error of pgx: after one it drops the prepared statements of the
// whole batch, and Postgres must plan them again.
func (k *keyLookups) scan(rows pgx.Rows, l *keyLookup) error {
	defer rows.Close()
	l.link = nil
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return ErrNotFound
	}
	row := joinedRow{rows, credentialFields(&l.credential)}
	if l.target == (LinkRef{}) {
		return row.Scan()
	}
	if columns := rows.RawValues(); columns[len(row.first)] == nil { // the id of the link
		return row.Scan(make([]any, len(columns)-len(row.first))...)
	}
	link, _, err := k.store.scanLink(row)
	l.link = &link
	return err
}

// joinedRow is a row whose first columns have targets of their own. Scan takes those of the other columns.
type joinedRow struct {
	rows  pgx.Rows
	first []any
}

// Scan implements pgx.Row.
func (r joinedRow) Scan(rest ...any) error { return r.rows.Scan(append(r.first, rest...)...) }
