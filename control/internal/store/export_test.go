package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// RareWord is the word of a search that an organization's links are searched by.
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
