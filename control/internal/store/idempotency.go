package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/feed"
)

// IdempotencyKey is the Idempotency-Key of a request. The store knows only hashes.
type IdempotencyKey struct {
	// Scope is what has one effect: method, path and key. Fingerprint is the rest of the request: a repeated request has the same.
	Scope, Fingerprint [sha256.Size]byte
}

// Response is the response to a write. With an idempotency key, the store keeps it.
type Response struct {
	Status int
	// Body is complete, and must not be changed.
	Body []byte
	// ETag and Result are headers; empty: none.
	ETag, Result string
}

// Written is a committed write of links, or the repetition of one.
type Written struct {
	Response
	// Replayed: an earlier request with the same key got this response, and this request wrote nothing.
	Replayed bool
	// Change is what the edges must apply before the response is complete, and Also are earlier transactions of which the same is true.
	Change feed.Change
	Also   []uint64
	// IsCreate: the write only created links, so that the change replaces nothing but 404s.
	IsCreate bool
}

const (
	// keyPatience is how long a repeated request waits for the first one to end.
	keyPatience = 5 * time.Second
	// A waiting request asks again after firstKeyPoll, then after twice as long each time, and at most after lastKeyPoll. It holds neither
	// a connection nor a place in a share meanwhile.
	firstKeyPoll = 10 * time.Millisecond
	lastKeyPoll  = 200 * time.Millisecond
)

// errKeyHeld: another request with the same key has an open transaction.
var errKeyHeld = errors.New("another request with the idempotency key is running")

// storedFresh is the condition for a stored response that still counts.
const storedFresh = `organization_id = $1 and scope = $2 and created_at > now() - interval '24 hours'`

// lockUsageByKeySQL locks the organization's links if the transaction gets the lock of the key and nothing is stored for the key. Otherwise
// it waits for nothing and returns no row. Requests with one key thus never wait for each other here: that would take the places of other
// writers.
const lockUsageByKeySQL = `
	with attempt as materialized (
		select pg_try_advisory_xact_lock($3) and not exists (select from idempotency_keys where ` + storedFresh + `) as is_first)
	select u.links from attempt a, link_usage u where a.is_first and u.organization_id = $1 for no key update of u`

const storedResponseSQL = `
	select fingerprint, status, body, coalesce(etag, ''), coalesce(result, ''), xid, is_create, is_bulk from idempotency_keys where ` + storedFresh

// storeResponseSQL replaces a response that no longer counts. Without an xid it is that of the transaction.
const storeResponseSQL = `
	insert into idempotency_keys (organization_id, scope, fingerprint, status, body, etag, result, xid, is_create, is_bulk)
	values ($1, $2, $3, $4, $5, nullif($6, ''), nullif($7, ''), coalesce($8, pg_current_xact_id()), $9, $10)
	on conflict (organization_id, scope) do update
	set fingerprint = excluded.fingerprint, status = excluded.status, body = excluded.body, etag = excluded.etag, result = excluded.result,
	    xid = excluded.xid, is_create = excluded.is_create, is_bulk = excluded.is_bulk, created_at = excluded.created_at`

// tryKeySQL only looks, so it takes the lock shared: requests that wait do not get in each other's way.
const tryKeySQL = `select pg_try_advisory_xact_lock_shared($1)`

// lockID returns the advisory lock of the key: 64 bits of a hash, so that two keys practically never share one.
func (k IdempotencyKey) lockID(orgID string) int64 {
	sum := sha256.Sum256(append([]byte(orgID+"\n"), k.Scope[:]...))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// storedResponse is a row of idempotency_keys. isBulk: the request also waited for the changes of other transactions.
type storedResponse struct {
	fingerprint      []byte
	response         Response
	xid              uint64
	isCreate, isBulk bool
}

// queueStored queues the read of what is stored for the key. found is set with the rest.
func queueStored(batch *pgx.Batch, w Write, found *bool, r *storedResponse) {
	batch.Queue(storedResponseSQL, w.OrganizationID, w.Key.Scope[:]).QueryRow(scanIfFound(found, &r.fingerprint, &r.response.Status,
		&r.response.Body, &r.response.ETag, &r.response.Result, &r.xid, &r.isCreate, &r.isBulk))
}

// replay returns the stored response to a repeated request, and ends the transaction. ErrKeyReused: the request is another one.
func (r storedResponse) replay(ctx context.Context, tx *transaction, w Write) (out Written, err error) {
	if string(r.fingerprint) != string(w.Key.Fingerprint[:]) {
		return Written{}, ErrKeyReused
	}
	out = Written{Response: r.response, Replayed: true, IsCreate: r.isCreate}
	out.Change, err = tx.finishRepeat(ctx, r.xid)
	if r.isBulk {
		// An edge that acknowledges the transaction's own change may not have applied those that the request waited for in addition.
		// A snapshot that has the transaction has them all.
		out.Change = feed.Change{XID: r.xid}
	}
	return out, err
}

// store queues the insert of the response to a request with a key, and nothing for one without. xid is the transaction that the response
// waits for; 0: this one. isBulk: it also waits for others.
func (w Write) store(batch *pgx.Batch, out Written, xid uint64, isBulk bool) {
	if w.Key == nil {
		return
	}
	var waited *uint64
	if xid != 0 {
		waited = &xid
	}
	batch.Queue(storeResponseSQL, w.OrganizationID, w.Key.Scope[:], w.Key.Fingerprint[:], out.Status, out.Body, out.ETag, out.Result, waited, out.IsCreate, isBulk)
}

// writeLinks is Store.write for a request that may have an idempotency key. If another request with the key is running, it waits for that
// one for keyPatience, outside of the organization's share: statements then return errKeyHeld. The error is then ErrKeyInProgress.
func (s *Store) writeLinks(ctx context.Context, actor Actor, w Write, what string, statements func(*transaction) error) error {
	if w.Key == nil || actor == (Actor{}) {
		return s.write(ctx, actor, w.OrganizationID, what, statements)
	}
	var deadline time.Time
	for {
		err := s.writeByKey(ctx, actor, w, what, statements)
		if !errors.Is(err, errKeyHeld) {
			return err
		}
		if deadline.IsZero() {
			deadline = time.Now().Add(keyPatience)
		}
		if err := s.awaitKey(ctx, w, what, deadline); err != nil {
			return err
		}
	}
}

// writeByKey is one attempt of writeLinks. A request that would wait for its share first checks whether another one with the key is running,
// because that one may be what the share waits for.
func (s *Store) writeByKey(ctx context.Context, actor Actor, w Write, what string, statements func(*transaction) error) error {
	leave, ok := s.shares.writes.TryAcquire(w.OrganizationID)
	if !ok {
		free, err := s.tryKey(ctx, w, what)
		if err != nil {
			return err
		}
		if !free {
			return errKeyHeld
		}
		if leave, err = enter(ctx, s.shares.writes, w.OrganizationID, what); err != nil {
			return err
		}
	}
	defer leave()
	return s.transact(ctx, actor, what, statements)
}

// tryKey reports whether no request with the key has an open transaction.
func (s *Store) tryKey(ctx context.Context, w Write, what string) (free bool, err error) {
	err = retry(what, func() error {
		return s.pool.QueryRow(ctx, tryKeySQL, w.Key.lockID(w.OrganizationID)).Scan(&free)
	})
	return free, err
}

// awaitKey waits until no request with the key is running. ErrKeyInProgress: one was still running at the deadline.
func (s *Store) awaitKey(ctx context.Context, w Write, what string, deadline time.Time) error {
	poll := time.NewTimer(0)
	defer poll.Stop()
	for pause := firstKeyPoll; ; pause = min(2*pause, lastKeyPoll) {
		select {
		case <-ctx.Done():
			return translate(what, ctx.Err())
		case <-poll.C:
		}
		free, err := s.tryKey(ctx, w, what)
		if err != nil || free {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return ErrKeyInProgress
		}
		poll.Reset(min(pause, left))
	}
}

var purgeIdempotencyKeysSQL = cursorSQL("idempotency_keys", "created_at")

// idempotencyKept is how long a response is stored. storedFresh has the same time.
const idempotencyKept = 24 * time.Hour

// PurgeIdempotencyKeys deletes some of the stored responses that no longer count.
func (s *Store) PurgeIdempotencyKeys(ctx context.Context, from *Cursor) (Purged, error) {
	return s.byTime(ctx, "idempotency keys", purgeIdempotencyKeysSQL, from, idempotencyKept)
}

const overdueKeySQL = `select clock_timestamp() - min(created_at) from idempotency_keys`

// IdempotencyPurgeOverdue returns for how long the oldest stored response should have been deleted. It is 0 or less when there is none.
func (s *Store) IdempotencyPurgeOverdue(ctx context.Context) (overdue time.Duration, err error) {
	var age *time.Duration
	err = retry("look at idempotency keys", func() error { return s.pool.QueryRow(ctx, overdueKeySQL).Scan(&age) })
	if err != nil || age == nil {
		return 0, err
	}
	return *age - idempotencyKept, nil
}
