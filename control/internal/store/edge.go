package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Edge is a registered edge as one who wants to ask it knows it.
type Edge struct {
	Slot string
	// Address is host and port at which the edge itself is reached; empty when it does not say.
	Address string
}

const edgesSQL = `select slot, coalesce(address, '') from edges order by slot`

// Edges returns all edges that are registered, those included that died and have not been found dead yet.
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
