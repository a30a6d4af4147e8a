package clicks

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// waitingAfter is when a log that publishes nothing counts as waiting.
const waitingAfter = 10 * time.Second

// State is why clicks of a log may be absent.
type State string

const (
	// Waiting: the log is open and has published nothing for 10 s. It holds asOf back.
	Waiting State = "waiting"
	// Forgotten: an operator gave up the log.
	Forgotten State = "forgotten"
	// Lost: some clicks are gone.
	Lost State = "lost"
	// Off: the edge records no clicks.
	Off State = "off"

	stateOpen State = "open"
)

// Missing is a log from which clicks may be absent.
type Missing struct {
	Slot  string     `json:"slot"`
	Since *time.Time `json:"since"` // nil if Off
	Until *time.Time `json:"until"` // nil if Waiting or Off
	State State      `json:"state"`
}

// Completeness is up to when figures are complete.
type Completeness struct {
	AsOf    time.Time
	Missing []Missing
	// CountedSince is when the first log was registered, nil if there is none.
	CountedSince *time.Time
	// ReclassifiedAt is when a reclassification last changed a click of the organization, nil if never.
	ReclassifiedAt *time.Time
	// Now is Postgres's clock.
	Now time.Time
}

// maxMissing bounds Missing.
const maxMissing = 100

const asOfSQL = `
	select as_of, (select min(created_at) from click_logs), (select max(reclassified_at) from click_organizations where org_key = $1), clock_timestamp()
	from click_as_of`

// missingSQL returns the logs from which clicks in [$1, $2) may be absent, the newest first. An edge without a log is one that is registered
// without recording, such as an older release: the id of a log is the incarnation of its edge. A dead edge whose log was closed has one.
const missingSQL = `
	select slot, since, until, state from (
		select slot, through as since, null::timestamptz as until, 'waiting' as state, created_at from click_logs
		where state = 'open' and published_at < clock_timestamp() - $3::interval and through < $2
		union all
		select slot, through, ended_at, state::text, created_at from click_logs
		where state in ('forgotten', 'lost') and through < $2 and ended_at > $1
		union all
		select slot, null, null, 'off', created_at from click_logs where state = 'off' and created_at < $2
		union all
		select slot, null, null, 'off', clock_timestamp() from edges e
		where not exists (select from click_logs l where l.slot = e.slot and l.state in ('open', 'off')) and not exists (select from click_logs l where l.log = e.incarnation)
	) m order by coalesce(since, created_at) desc, slot limit $4`

// completeness reads asOf and what is missing of the figures of an organization in [from, to), in one round trip.
func completeness(ctx context.Context, tx pgx.Tx, orgKey string, from, to time.Time) (c Completeness, err error) {
	batch := &pgx.Batch{}
	batch.Queue(asOfSQL, orgKey).QueryRow(func(row pgx.Row) error {
		return row.Scan(&c.AsOf, &c.CountedSince, &c.ReclassifiedAt, &c.Now)
	})
	batch.Queue(missingSQL, from, to, waitingAfter, maxMissing).Query(func(rows pgx.Rows) (err error) {
		c.Missing, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Missing])
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return c, err
	}
	// Clicks and responses have milliseconds: a click in the millisecond of asOf is not before it.
	c.AsOf = c.AsOf.Truncate(time.Millisecond)
	return c, nil
}
