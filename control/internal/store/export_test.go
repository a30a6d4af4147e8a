package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// RareWord returns the word of a search that Links would look up for the organization.
func (s *Store) RareWord(ctx context.Context, orgID, search string) (word string, err error) {
	err = s.snapshot(ctx, "find a rare word", func(tx pgx.Tx) error {
		word, err = rareWord(ctx, tx, orgID, search)
		return err
	})
	return word, err
}

// InSnapshot runs f while a transaction is open.
func (s *Store) InSnapshot(ctx context.Context, f func()) error {
	return s.snapshot(ctx, "call", func(pgx.Tx) error { f(); return nil })
}

// MaxWaitingWrites is how many writes of an organization may wait.
const MaxWaitingWrites = maxWaitingWrites

// Statements of purges, and the maximum of rows or pages that one reads.
const (
	SweptPages = sweptPages
	PurgedRows = purgedRows
)

// ByIndex precedes each statement of a purge.
const ByIndex = byIndexSQL

// PurgeStatements are the deleting statements, by the name of their purge.
var PurgeStatements = map[string]string{
	"changes": purgeChangesSQL, "deleted_links": purgeDeletedLinksSQL, "devices": purgeDevicesSQL, "identities": purgeIdentitiesSQL,
	"sessions": purgeSessionsSQL, "event_ids": purgeEventIDsSQL, "match_redemptions": purgeRedemptionsSQL,
	"idempotency_keys": purgeIdempotencyKeysSQL,
}

// ErasedRows is how many rows a statement of a deletion reads.
const ErasedRows = erasedRows
