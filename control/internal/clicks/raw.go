package clicks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/click"
)

// Raw keeps clicks one by one. Its methods run in a transaction of the caller, which also changes the figures.
type Raw interface {
	// Append keeps the clicks of batches that are being counted, with their final class, except those from before kept.
	Append(ctx context.Context, tx pgx.Tx, clicks []Counted, kept time.Time) error
	// Page returns clicks of an organization in the order of their positions, or in the opposite order.
	Page(ctx context.Context, tx pgx.Tx, request PageRequest) ([]Click, error)
	// Day returns counted clicks of an organization and a day (UTC), in the order of their positions, from after a position on.
	Day(ctx context.Context, tx pgx.Tx, orgKey string, day time.Time, after Position, limit int) ([]Click, error)
	// DeleteBefore deletes some of the clicks of the days before kept. done: there are no more.
	DeleteBefore(ctx context.Context, tx pgx.Tx, kept time.Time) (deleted int64, done bool, err error)
}

// Counted is a click that a roll-up counts.
type Counted struct {
	Click
	// Reason and Late of Click are final. The edge stored these.
	storedReason  click.Reason
	storedRuleset int16
	storedLate    bool
}

// PageRequest selects clicks of an organization.
type PageRequest struct {
	OrgKey string
	// From is inclusive, To exclusive.
	From, To time.Time
	// After is the position before the page, nil at the start.
	After      *Position
	Descending bool
	Limit      int
	Classes    []click.Class
	Outcomes   []click.Outcome
	Late       *bool
	Links      LinkFilter
}

// table is the Raw in Postgres: the partitioned table clicks, into which edges insert directly.
type table struct{}

const clickColumns = `
	c.at, c.log, c.sequence, c.ordinal, c.org_key, c.link_id, c.outcome::text, c.reason::text, c.ruleset, c.evidence, c.agent_id, c.country,
	c.language, c.referrer, c.visitor, c.late`

func scanClick(row pgx.CollectableRow) (c Click, err error) {
	var outcome, reason string
	var evidence int16
	err = row.Scan(&c.At, &c.Log, &c.Sequence, &c.Ordinal, &c.OrgKey, &c.LinkID, &outcome, &reason, &c.Ruleset, &evidence, &c.AgentID,
		&c.Country, &c.Language, &c.Referrer, &c.Visitor, &c.Late)
	if err != nil {
		return c, err
	}
	c.Evidence = click.Evidence(evidence)
	var ok bool
	if c.Outcome, ok = click.ParseOutcome(outcome); !ok {
		return c, fmt.Errorf("unknown outcome %q", outcome)
	}
	if c.Reason, ok = click.ParseReason(reason); !ok {
		return c, fmt.Errorf("unknown reason %q", reason)
	}
	return c, nil
}

// batchClicksSQL returns the clicks of batches. The lateral subquery makes Postgres use the index of the batch on each partition.
const batchClicksSQL = `
	select ` + clickColumns + `
	from unnest($1::uuid[], $2::int[]) b (log, sequence)
	cross join lateral (select * from clicks c where c.log = b.log and c.sequence = b.sequence offset 0) c`

// isTheClick joins clicks c with keys n. It keeps Postgres from joining by log and sequence, which all clicks of a batch share: without
// statistics of a young partition it would compare each of them with each other, 10 billion times for a batch of 100,000.
const isTheClick = `
	where c.org_key = n.org_key and c.at = n.at and c.ordinal = n.ordinal and c.log is not distinct from n.log and c.sequence is not distinct from n.sequence`

const setReasonsSQL = `
	update clicks c set class = n.class::click_class, reason = n.reason::click_reason, ruleset = n.ruleset, late = n.late
	from unnest($1::text[], $2::timestamptz[], $3::uuid[], $4::int[], $5::int[], $6::text[], $7::text[], $8::smallint[], $9::bool[])
		n (org_key, at, log, sequence, ordinal, class, reason, ruleset, late)` + isTheClick + ` and c.at between $10 and $11`

const deleteClicksSQL = `
	delete from clicks c using unnest($1::text[], $2::timestamptz[], $3::uuid[], $4::int[], $5::int[]) n (org_key, at, log, sequence, ordinal)` + isTheClick + ` and c.at between $6 and $7`

// Append implements Raw. The edges have inserted the clicks already.
func (table) Append(ctx context.Context, tx pgx.Tx, clicks []Counted, kept time.Time) error {
	var changed, old []*Click
	for i := range clicks {
		c := &clicks[i]
		switch {
		case c.At.Before(kept):
			old = append(old, &c.Click)
		case c.Reason != c.storedReason || c.Ruleset != c.storedRuleset || c.Late != c.storedLate:
			changed = append(changed, &c.Click)
		}
	}
	if err := inPortions(old, func(a *clickArrays) error {
		_, err := tx.Exec(ctx, deleteClicksSQL, append(a.keys(), a.first, a.last)...)
		return err
	}); err != nil {
		return err
	}
	return setReasons(ctx, tx, changed)
}

// setReasons stores class, reason, ruleset and late of the clicks.
func setReasons(ctx context.Context, tx pgx.Tx, clicks []*Click) error {
	return inPortions(clicks, func(a *clickArrays) error {
		_, err := tx.Exec(ctx, setReasonsSQL, append(a.keys(), a.classes, a.reasons, a.rulesets, a.late, a.first, a.last)...)
		return err
	})
}

// changedClicks is the number of clicks per statement that changes clicks one by one, far below what takes 10 s.
const changedClicks = 2_000

// inPortions calls do with clicks in the order of their times, so that each statement concerns few partitions.
func inPortions(clicks []*Click, do func(*clickArrays) error) error {
	slices.SortFunc(clicks, func(a, b *Click) int { return a.At.Compare(b.At) })
	for part := range slices.Chunk(clicks, changedClicks) {
		a := clickArrays{first: part[0].At, last: part[len(part)-1].At}
		for _, c := range part {
			a.add(c)
		}
		if err := do(&a); err != nil {
			return err
		}
	}
	return nil
}

// clickArrays are clicks as parameters of statements.
type clickArrays struct {
	first, last         time.Time // the times of the first and the last click
	orgKeys             []string
	at                  []time.Time
	logs                []uuid.UUID
	sequences, ordinals []int32
	classes, reasons    []string
	rulesets            []int16
	late                []bool
}

func (a *clickArrays) add(c *Click) {
	a.orgKeys, a.at, a.logs = append(a.orgKeys, c.OrgKey), append(a.at, c.At), append(a.logs, c.Log)
	a.sequences, a.ordinals = append(a.sequences, c.Sequence), append(a.ordinals, c.Ordinal)
	a.classes, a.reasons = append(a.classes, c.Reason.Class().String()), append(a.reasons, c.Reason.String())
	a.rulesets, a.late = append(a.rulesets, c.Ruleset), append(a.late, c.Late)
}

func (a *clickArrays) keys() []any { return []any{a.orgKeys, a.at, a.logs, a.sequences, a.ordinals} }

// isCounted excludes clicks of batches that no roll-up has counted yet.
const isCounted = ` and not exists (select from click_batches b where b.log = c.log and b.sequence = c.sequence and b.rolled_at is null)`

// Page implements Raw.
func (table) Page(ctx context.Context, tx pgx.Tx, p PageRequest) ([]Click, error) {
	q := newQuery(p.OrgKey)
	q.where(`c.org_key = $1 and c.class <> 'internal' and c.at >= ` + q.value(p.From) + ` and c.at < ` + q.value(p.To))
	if p.After != nil {
		sign, order := `>`, `>=`
		if p.Descending {
			sign, order = `<`, `<=`
		}
		at := q.value(p.After.At)
		// The comparison of rows implies the condition on at, but only the simple condition excludes partitions.
		q.where(`c.at ` + order + ` ` + at + ` and (c.at, c.log, c.sequence, c.ordinal) ` + sign + ` (` + at + `, ` + q.value(p.After.Log) + `, ` +
			q.value(p.After.Sequence) + `, ` + q.value(p.After.Ordinal) + `)`)
	}
	if p.Classes != nil {
		q.where(`c.class = any (` + q.value(names(p.Classes)) + `::click_class[])`)
	}
	if p.Outcomes != nil {
		q.where(`c.outcome = any (` + q.value(names(p.Outcomes)) + `::click_outcome[])`)
	}
	if p.Late != nil {
		q.where(`c.late = ` + q.value(*p.Late))
	}
	p.Links.restrict(q, `c.link_id`)
	order := ``
	if p.Descending {
		order = ` desc`
	}
	sql := `select ` + clickColumns + ` from clicks c where ` + strings.Join(q.conditions, ` and `) + isCounted +
		` order by c.at` + order + `, c.log` + order + `, c.sequence` + order + `, c.ordinal` + order + ` limit ` + q.value(p.Limit)
	rows, err := tx.Query(ctx, sql, q.arguments...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanClick)
}

// Day implements Raw.
func (t table) Day(ctx context.Context, tx pgx.Tx, orgKey string, of time.Time, after Position, limit int) ([]Click, error) {
	const sql = `select ` + clickColumns + ` from clicks c
		where c.org_key = $1 and c.at >= $2 and c.at < $3 and c.at >= $4 and (c.at, c.log, c.sequence, c.ordinal) > ($4, $5, $6, $7)` + isCounted + `
		order by c.at, c.log, c.sequence, c.ordinal limit $8`
	rows, err := tx.Query(ctx, sql, orgKey, of, of.Add(day), after.At, after.Log, after.Sequence, after.Ordinal, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanClick)
}

// deletedClicks is the number of clicks per statement of DeleteBefore.
const deletedClicks = 10_000

// DeleteBefore implements Raw. Whole days are dropped with their partitions; other clicks are in clicks_other.
func (table) DeleteBefore(ctx context.Context, tx pgx.Tx, kept time.Time) (deleted int64, done bool, err error) {
	const sql = `delete from clicks_other where ctid = any (array(
		select c.ctid from clicks_other c where c.at < $1` + isCounted + ` limit $2))`
	tag, err := tx.Exec(ctx, sql, kept, deletedClicks)
	return tag.RowsAffected(), tag.RowsAffected() < deletedClicks, err
}
