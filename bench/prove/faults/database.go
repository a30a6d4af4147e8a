package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/faults/history"
)

const selectState = `
	select o.suspended, l.is_active, l.fallback_url
	from links l join organizations o on o.id = l.organization_id join domains d on d.id = l.domain_id
	where case when $1 = '' then o.org_key = $2 and d.host is null else d.host = $1 and d.status = 'verified' end
	      and lower(l.short_code) = $3`

// checkDatabase compares the acknowledged changes with the database, including those of retired subjects: even there not every state is
// possible.
func (r *run) checkDatabase(ctx context.Context) error {
	for _, s := range r.board.ever() {
		for _, a := range s.addresses {
			state, err := r.stateOf(ctx, s, a)
			if err != nil {
				return err
			}
			s.Check(state)
		}
	}
	return nil
}

// stateOf returns the state that a short URL must show, according to the tables alone.
func (r *run) stateOf(ctx context.Context, s *subject, a address) (history.State, error) {
	orgKey, code, shared := strings.Cut(a.path[1:], "/")
	if !shared {
		orgKey, code = "", a.path[1:]
	}
	var suspended, active bool
	var location *string
	err := r.rig.owner.QueryRow(ctx, selectState, a.host, orgKey, code).Scan(&suspended, &active, &location)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return history.Gone, nil
	case err != nil:
		return 0, fmt.Errorf("compare the database with the acknowledged changes: %w", err)
	case suspended || !active:
		return history.Off, nil
	case location == nil:
		return history.Foreign, nil
	}
	return s.leads([]byte(*location)), nil
}
