package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
)

// locksHeld is how long the transactions that block the migration stay open: long enough for several of its attempts.
const locksHeld = 15 * time.Second

// migrateUnderLocks runs the migration while an export is open and a transaction has written to the tables that the migration changes. The
// migration succeeds once both have ended; until then edges must keep their leases.
func (u *upgrade) migrateUnderLocks(ctx context.Context) error {
	before, err := u.polls(ctx)
	if err != nil {
		return err
	}
	release, err := u.hold(ctx)
	if err != nil {
		return err
	}
	var ran []byte
	migrated := make(chan error, 1)
	go func() {
		var err error
		ran, err = u.Operate(ctx, u.Owner, "migrate")
		migrated <- err
	}()
	select {
	case err := <-migrated:
		return errors.Join(fmt.Errorf("control migrate did not wait for the locks: %s", ran), err, release())
	case <-time.After(locksHeld):
	}
	if err := errors.Join(release(), <-migrated); err != nil {
		return err
	}
	if !bytes.Contains(ran, []byte(nextVersion)) {
		return fmt.Errorf("control migrate ran %s, not %s", ran, nextVersion)
	}
	after, err := u.polls(ctx)
	u.underLocks = polls{after.all - before.all, after.late - before.late}
	return err
}

// hold opens the transactions; release ends them.
func (u *upgrade) hold(ctx context.Context) (release func() error, err error) {
	var held []*pgx.Conn
	release = func() (err error) {
		for _, conn := range held {
			err = errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
		}
		return err
	}
	for _, statements := range []string{
		`begin isolation level repeatable read read only; declare exported cursor for select * from links; fetch 1 from exported`,
		`begin; lock table links, domains, edges in row exclusive mode`,
	} {
		conn, err := pgx.Connect(ctx, u.Owner)
		if err != nil {
			return nil, errors.Join(err, release())
		}
		held = append(held, conn)
		if _, err := conn.PgConn().Exec(ctx, statements).ReadAll(); err != nil {
			return nil, errors.Join(err, release())
		}
	}
	return release, nil
}

// polls are the completed polls of edges, and how many of them completed after the previous lease had expired.
type polls struct{ all, late int }

// polls returns the sums over all edges.
func (u *upgrade) polls(ctx context.Context) (sum polls, err error) {
	const gaps = "deeplink_edge_poll_gap_seconds"
	for _, edge := range u.Edges {
		all, err := fleet.Metric(ctx, edge.Admin, gaps+"_count")
		if err != nil {
			return sum, err
		}
		inTime, err := fleet.Metric(ctx, edge.Admin, fmt.Sprintf(`%s_bucket{le="%d"}`, gaps, int(fleet.Lease.Seconds())))
		if err != nil {
			return sum, err
		}
		sum.all, sum.late = sum.all+int(all), sum.late+int(all-inTime)
	}
	return sum, nil
}

// finding is the one about leases.
func (p polls) finding() figures.Finding {
	return figures.None(fmt.Sprintf("polls after the end of a lease while the migration waited %v for its locks", locksHeld), p.late, p.all)
}
