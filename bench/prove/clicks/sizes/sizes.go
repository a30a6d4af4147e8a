// Package sizes is `prove clicks sizes`: how many bytes Postgres takes for a click and for each row that is counted of clicks.
package sizes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
	"deeplink/shared/click"
	"deeplink/shared/click/classes"
)

// Command ships clicks as edges do, lets a control count them, and measures the tables.
type Command struct {
	Clicks   int           `default:"200000" help:"Number of clicks."`
	Links    int           `default:"20000" help:"Number of links. A few of them get most of the clicks."`
	Span     time.Duration `default:"48h" help:"Time over which the clicks are spread, until now."`
	Requests string        `default:"shared/click/testdata/requests.ndjson" type:"path" help:"File whose User-Agents the clicks have."`
}

const (
	// batch is the number of clicks that are shipped, and counted, together.
	batch = 5_000
	// countWithin is how long a control may take to count a batch.
	countWithin = 2 * time.Minute
	// maxAgent is the number of bytes of a User-Agent that are stored.
	maxAgent = 512
	// The budgets in bytes, indexes included.
	clickBudget, quarterBudget = 200, 130
)

// Run prints the sizes.
func (c Command) Run(ctx context.Context, out *proof.Output) (err error) {
	if c.Clicks < batch || c.Links < 1 || c.Span < time.Hour {
		return fmt.Errorf("there must be %d clicks, a link and an hour", batch)
	}
	requests, err := classes.Read(c.Requests)
	if err != nil {
		return err
	}
	f, err := fleet.Launch(ctx, 1, 0, out.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(context.WithoutCancel(ctx))) }()
	organization, err := fleet.NewOrganization(ctx, f.OperatorCommand)
	if err != nil {
		return err
	}
	owner, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return err
	}
	defer owner.Close(context.WithoutCancel(ctx))
	if err := c.ship(ctx, owner, organization.OrgKey, requests); err != nil {
		return err
	}
	findings, err := measure(ctx, owner, out)
	if err != nil {
		return err
	}
	figures.Print(out, findings)
	return figures.Unkept(findings)
}

// The clicks have the class that an edge gives them. A request without a User-Agent has no entry in click_agents.
const insertClicks = `
	insert into clicks (log, sequence, ordinal, at, org_key, link_id, outcome, class, reason, ruleset, evidence, agent_id, country, language, referrer, visitor)
	select $1, $2, n, date_trunc('milliseconds', $3::timestamptz + (n::float8 + random()) / $5 * ($4::timestamptz - $3)), $6,
	       -- The number of a link is the exponential of a uniform number: clicks per link follow Zipf's law.
	       md5(floor(exp(random() * ln($7::float8)))::text)::uuid, (array['redirect', 'handoff', 'handoff', 'preview'])[1 + n % 4]::click_outcome,
	       r.class, r.reason, $8, r.evidence, r.agent_id, (array['DE', 'US', 'FR', 'BR', null])[1 + n % 5], (array['de', 'en', 'fr', 'pt', null])[1 + n % 5],
	       (array['www.example.com', 'm.facebook.example', 'news.example.org', null, null])[1 + n % 5], (random() * 9e18)::bigint
	from generate_series(0, $5 - 1) n
	join (select *, count(*) over () as all_requests from requests) r on r.number = n * 7919::bigint % r.all_requests`

// ship inserts the clicks in batches, as edges do, in the order of their time, each when the one before it was counted.
func (c Command) ship(ctx context.Context, owner *pgx.Conn, orgKey string, requests []classes.Request) error {
	if err := store(ctx, owner, requests); err != nil {
		return err
	}
	// A batch has its time in milliseconds: one that is rounded to before its log would be late.
	log, from := uuid.New(), time.Now().Add(-c.Span).Truncate(time.Minute)
	if _, err := owner.Exec(ctx, `insert into click_logs (log, slot, durable, through) values ($1, 'sizes', true, $2)`, log, from); err != nil {
		return err
	}
	for i := range c.Clicks / batch {
		first, next := c.start(from, i), c.start(from, i+1)
		err := pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `insert into click_batches (slot, log, sequence, first_at, clicks) values ('sizes', $1, $2, $3, $4)`, log, i+1, first, batch); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, insertClicks, log, i+1, first, next, batch, orgKey, c.Links, click.Ruleset); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `update click_logs set through = $2, published_at = clock_timestamp() where log = $1`, log, next)
			return err
		})
		if err != nil {
			return fmt.Errorf("batch %d: %w", i+1, err)
		}
		if err := waitUntilCounted(ctx, owner); err != nil {
			return fmt.Errorf("batch %d: %w", i+1, err)
		}
	}
	return nil
}

// start returns the time of the first click of a batch.
func (c Command) start(from time.Time, i int) time.Time {
	return from.Add(c.Span * time.Duration(i) / time.Duration(c.Clicks/batch)).Truncate(time.Millisecond)
}

const storeSQL = `
	with agent as (insert into click_agents (agent) select $2 where $2 <> '' on conflict (agent) do update set agent = excluded.agent returning id)
	insert into requests values ($1, (select id from agent), $3, $4, $5)`

// store makes a table of the requests, with what an edge would store of each.
func store(ctx context.Context, owner *pgx.Conn, requests []classes.Request) error {
	if _, err := owner.Exec(ctx, `create temporary table requests (number int, agent_id int, class click_class, reason click_reason, evidence int)`); err != nil {
		return err
	}
	for i := range requests {
		r := &requests[i]
		agent := r.UserAgent()
		if _, err := owner.Exec(ctx, storeSQL, i, agent[:min(len(agent), maxAgent)], r.Reason().Class().String(), r.Reason().String(), int(r.Evidence())); err != nil {
			return err
		}
	}
	return nil
}

func waitUntilCounted(ctx context.Context, owner *pgx.Conn) error {
	for end := time.Now().Add(countWithin); ; {
		var waiting int
		if err := owner.QueryRow(ctx, `select count(*) from click_batches where rolled_at is null`).Scan(&waiting); err != nil {
			return err
		}
		if waiting == 0 {
			return nil
		}
		if time.Now().After(end) || !fleet.Pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("%d batches were not counted within %v", waiting, countWithin)
		}
	}
}

// tables are what clicks fill, with the row that each has.
var tables = []struct{ name, row string }{
	{"clicks", "click"}, {"click_quarters", "quarter, link, class and outcome"}, {"click_days", "day, link, class and outcome"},
	{"click_dimensions", "day, link, class, dimension and value"}, {"click_visitors", "visitor, link and day"}, {"click_links", "link"},
}

const sizeSQL = `
	select sum(pg_table_size(relid))::bigint, sum(pg_indexes_size(relid))::bigint
	from (select relid from pg_partition_tree($1::regclass) where isleaf union select $1::regclass) t`

// measure prints the size of each table, and returns those that have a budget.
func measure(ctx context.Context, owner *pgx.Conn, out *proof.Output) (findings []figures.Finding, err error) {
	fmt.Fprint(out, "| table | one row per | rows | bytes per row | of these, indexes |\n|---|---|---|---|---|\n")
	var clicks, all int64
	for _, t := range tables {
		var rows, heap, indexes int64
		if err := owner.QueryRow(ctx, `select count(*) from `+pgx.Identifier{t.name}.Sanitize()).Scan(&rows); err != nil {
			return nil, err
		}
		if err := owner.QueryRow(ctx, sizeSQL, t.name).Scan(&heap, &indexes); err != nil {
			return nil, err
		}
		if rows == 0 {
			return nil, fmt.Errorf("%s has no rows", t.name)
		}
		perRow := float64(heap+indexes) / float64(rows)
		fmt.Fprintf(out, "| `%s` | %s | %d | %.0f | %.0f |\n", t.name, t.row, rows, perRow, float64(indexes)/float64(rows))
		all += heap + indexes
		switch t.name {
		case "clicks":
			clicks = rows
			findings = append(findings, figures.Counted("bytes per click", fmt.Sprintf("%.0f", perRow), fmt.Sprint("≤ ", clickBudget), perRow <= clickBudget))
		case "click_quarters":
			findings = append(findings, figures.Counted("bytes per quarter row", fmt.Sprintf("%.0f", perRow), fmt.Sprint("≤ ", quarterBudget), perRow <= quarterBudget))
		}
	}
	fmt.Fprintf(out, "\nTogether %.0f bytes per click of this run.\n\n", float64(all)/float64(clicks))
	return findings, nil
}
