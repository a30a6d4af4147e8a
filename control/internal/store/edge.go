package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Edge is a registered edge with its address.
type Edge struct {
	Slot string
	// Address is the host and port of the edge itself; empty if unknown.
	Address string
}

const edgesSQL = `select slot, coalesce(address, '') from edges order by slot`

// Edges returns all registered edges, including dead ones whose rows control has not deleted yet.
func (s *Store) Edges(ctx context.Context) (all []Edge, err error) {
	err = retry("list edges", func() error {
		rows, err := s.pool.Query(ctx, edgesSQL)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Edge])
		return err
	})
	return all, err
}
