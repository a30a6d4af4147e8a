package clicks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/click"
)

// ErrRunning: another reclassification is running.
var ErrRunning = errors.New("another reclassification is running")

// Move is a number of clicks whose class changed.
type Move struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Clicks int64  `json:"clicks"`
}

// Reclassified is the result of a reclassification.
type Reclassified struct {
	Clicks  int64  `json:"clicks"`  // that were classified
	Changed int64  `json:"changed"` // whose class changed
	Moves   []Move `json:"moves"`
}

// reclassifiedClicks is the number of clicks per transaction.
const reclassifiedClicks = 5_000

// reclassifyLock is the session lock of a reclassification.
const reclassifyLock = `hashtextextended('clicks reclassify', 0)`

// Reclassify classifies the kept clicks of one organization, or of all if orgKey is empty, from a day (UTC) on again, and corrects the figures
// by the difference. It works in short transactions, each of which changes clicks and figures together, so it can be interrupted and run
// again. It records an audit entry for each organization in which a click changed. Error: ErrRunning.
func Reclassify(ctx context.Context, pool *pgxpool.Pool, actor store.Actor, orgKey string, since time.Time, retention time.Duration) (Reclassified, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return Reclassified{}, err
	}
	defer conn.Release()
	var locked bool
	if err := conn.QueryRow(ctx, `select pg_try_advisory_lock(`+reclassifyLock+`)`).Scan(&locked); err != nil {
		return Reclassified{}, err
	} else if !locked {
		return Reclassified{}, ErrRunning
	}
	// All transactions use this connection: without it, the lock is gone.
	defer conn.Exec(context.WithoutCancel(ctx), `select pg_advisory_unlock(`+reclassifyLock+`)`)
	r := reclassification{on: conn, raw: table{}, agents: newDictionary(), actor: actor, retention: retention, moves: map[[2]click.Class]int64{}}
	if err := r.run(ctx, orgKey, since); err != nil {
		return Reclassified{}, err
	}
	for classes, n := range r.moves {
		r.result.Moves = append(r.result.Moves, Move{classes[0].String(), classes[1].String(), n})
	}
	slices.SortFunc(r.result.Moves, func(a, b Move) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	if r.result.Moves == nil {
		r.result.Moves = []Move{}
	}
	return r.result, nil
}

type reclassification struct {
	on        beginner
	raw       Raw
	agents    *dictionary
	actor     store.Actor
	retention time.Duration
	since     time.Time
	canary    string
	audited   string // the organization whose entry is written
	result    Reclassified
	moves     map[[2]click.Class]int64
}

func (r *reclassification) run(ctx context.Context, orgKey string, since time.Time) error {
	r.since = since
	if kept := keptFrom(time.Now(), r.retention); since.Before(kept) {
		// Control may drop earlier days at any moment, and their visitors are not kept either.
		since = kept
	}
	type organization struct{ ID, Key string }
	var all []organization
	err := within(ctx, r.on, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select id::text, org_key from organizations where $1 = '' or org_key = $1 order by org_key`, orgKey)
		if err != nil {
			return err
		}
		if all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[organization]); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `select coalesce((select org_key from organizations where external_id = $1), '')`, store.CanaryOrganization).Scan(&r.canary)
	})
	if err != nil {
		return err
	}
	for _, o := range all {
		of, err := r.nextDay(ctx, o.Key, since)
		for ; err == nil && of != nil; of, err = r.nextDay(ctx, o.Key, of.Add(day)) {
			if err := r.day(ctx, o.ID, o.Key, *of); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nextDay returns the first day from a time on of which an organization has clicks, nil if there is none.
func (r *reclassification) nextDay(ctx context.Context, orgKey string, from time.Time) (of *time.Time, err error) {
	err = store.Retry("find clicks to reclassify", func() error {
		return within(ctx, r.on, func(tx pgx.Tx) error {
			var first *time.Time
			if err := tx.QueryRow(ctx, `select min(at) from clicks where org_key = $1 and at >= $2`, orgKey, from).Scan(&first); err != nil || first == nil {
				return err
			}
			start := dayOf(*first)
			of = &start
			return nil
		})
	})
	return of, err
}

// day classifies the clicks of an organization and a day, in transactions of its own for each few of them.
func (r *reclassification) day(ctx context.Context, orgID, orgKey string, of time.Time) error {
	after := Position{At: of}
	for more := true; more; {
		if err := store.Retry("reclassify clicks", func() error {
			var done Reclassified
			var moves map[[2]click.Class]int64
			var next Position
			audited := false
			err := within(ctx, r.on, func(tx pgx.Tx) (err error) {
				done, moves, next, audited, err = r.step(ctx, tx, orgID, orgKey, of, after)
				return err
			})
			if err != nil {
				return err
			}
			if audited {
				r.audited = orgKey
			}
			r.result.Clicks += done.Clicks
			r.result.Changed += done.Changed
			for k, n := range moves {
				r.moves[k] += n
			}
			more, after = done.Clicks == reclassifiedClicks, next
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// earlierFactsSQL returns what a ruleset knew of agents that a later one has read.
const earlierFactsSQL = `select agent_id, ruleset, facts from click_agent_rulesets where agent_id = any ($1)`

// step classifies clicks of an organization and a day from after a position on.
func (r *reclassification) step(ctx context.Context, tx pgx.Tx, orgID, orgKey string, of time.Time, after Position) (
	done Reclassified, moves map[[2]click.Class]int64, next Position, audited bool, err error,
) {
	clicks, err := r.raw.Day(ctx, tx, orgKey, of, after, reclassifiedClicks)
	if err != nil || len(clicks) == 0 {
		return done, nil, after, false, err
	}
	ids := agentIDs(clicks)
	if err := r.agents.load(ctx, tx, ids, true); err != nil {
		return done, nil, after, false, err
	}
	earlier, err := r.earlierFacts(ctx, tx, ids)
	if err != nil {
		return done, nil, after, false, err
	}
	f := newFigures(visitorsFrom(time.Now(), r.retention))
	var changed []*Click
	moves = map[[2]click.Class]int64{}
	moved := false
	for i := range clicks {
		c := &clicks[i]
		facts, known := r.agents.of(c.AgentID)
		reason := r.agents.classify(c, r.canary)
		ruleset := c.Ruleset
		if known {
			ruleset = click.Ruleset
		}
		if reason == c.Reason && ruleset == c.Ruleset {
			continue
		}
		counted := facts
		if c.AgentID != nil {
			if old, ok := earlier[agentRuleset{*c.AgentID, c.Ruleset}]; ok {
				counted = old
			}
		}
		was, is := c.Reason.Class(), reason.Class()
		if was != is {
			done.Changed++
			moves[[2]click.Class{was, is}]++
		}
		if was != is || counted != facts {
			f.add(c, was, counted, -1)
			f.add(c, is, facts, 1)
			moved = true
		}
		c.Reason, c.Ruleset = reason, ruleset
		changed = append(changed, c)
	}
	done.Clicks = int64(len(clicks))
	// The clicks come first: the figures of visitors depend on the classes of the clicks that remain.
	if err := setReasons(ctx, tx, changed); err != nil {
		return done, nil, after, false, err
	}
	if moved {
		if err := f.write(ctx, tx); err != nil {
			return done, nil, after, false, err
		}
	}
	if done.Changed > 0 {
		if _, err := tx.Exec(ctx, `insert into click_organizations (org_key, reclassified_at) values ($1, clock_timestamp())
			on conflict (org_key) do update set reclassified_at = excluded.reclassified_at`, orgKey); err != nil {
			return done, nil, after, false, err
		}
		if r.audited != orgKey {
			audited = true
			err = store.RecordClicks(ctx, tx, r.actor, store.ClicksReclassified, orgID, map[string]any{"since": r.since.Format(time.DateOnly)})
		}
	}
	return done, moves, clicks[len(clicks)-1].Position, audited, err
}

type agentRuleset struct {
	agent   int32
	ruleset int16
}

func (r *reclassification) earlierFacts(ctx context.Context, tx pgx.Tx, ids map[int32]bool) (map[agentRuleset]click.Facts, error) {
	rows, err := tx.Query(ctx, earlierFactsSQL, sortedKeys(ids, cmp.Compare[int32]))
	if err != nil {
		return nil, err
	}
	earlier := map[agentRuleset]click.Facts{}
	var k agentRuleset
	var facts int32
	_, err = pgx.ForEachRow(rows, []any{&k.agent, &k.ruleset, &facts}, func() error {
		earlier[k] = click.Facts(facts)
		return nil
	})
	return earlier, err
}
