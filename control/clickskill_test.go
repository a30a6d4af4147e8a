package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
	"deeplink/shared/click"
	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

// shipManySQL inserts the clicks of a batch in the role of the edges: $1 log, $2 sequence, $3 number of clicks, $4 orgKey, $5 links, $6 the first
// time. $7 are the ids of three agents: iOS, Windows, and a bot.
// $8 is the evidence.
const shipManySQL = `
	insert into clicks (log, sequence, ordinal, at, org_key, link_id, outcome, class, reason, ruleset, evidence, agent_id, country, language, referrer, visitor)
	select $1, $2, n, $6::timestamptz + n * interval '37 milliseconds', $4, ($5::uuid[])[1 + n % cardinality($5::uuid[])],
	       (array['redirect', 'handoff', 'expired']::click_outcome[])[1 + n % 3], 'human', 'browser', 1, $8, ($7::int[])[1 + n % 3],
	       (array['DE', 'FR', null])[1 + n % 3], 'de', 'site' || n % 50 || '.example', case when n % 7 > 0 then n * 31 % 500 end
	from generate_series(0, $3 - 1) n`

// tablesOfClicks are the tables of figures, and the same counted over the raw clicks, with no code of the roll-up.
var tablesOfClicks = map[string][2]string{
	"click_quarters": {
		`select org_key, link_id, quarter, class, outcome, clicks, late, undetailed from click_quarters where clicks <> 0`,
		`select org_key, link_id, date_bin('15 minutes', at, '2000-01-01 00:00Z'), class, outcome, count(*), count(*) filter (where late), 0 from clicks group by 1, 2, 3, 4, 5`,
	},
	"click_org_quarters": {
		`select org_key, quarter, class, outcome, clicks, late, undetailed from click_org_quarters where clicks <> 0`,
		`select org_key, date_bin('15 minutes', at, '2000-01-01 00:00Z'), class, outcome, count(*), count(*) filter (where late), 0 from clicks group by 1, 2, 3, 4`,
	},
	"click_days": {
		`select org_key, link_id, day, class, outcome, clicks, late, undetailed from click_days where clicks <> 0`,
		`select org_key, link_id, (at at time zone 'UTC')::date, class, outcome, count(*), count(*) filter (where late), 0 from clicks group by 1, 2, 3, 4, 5`,
	},
	"click_org_days": {
		`select org_key, day, class, outcome, clicks, late, undetailed from click_org_days where clicks <> 0`,
		`select org_key, (at at time zone 'UTC')::date, class, outcome, count(*), count(*) filter (where late), 0 from clicks group by 1, 2, 3, 4`,
	},
	"click_dimensions": {
		`select org_key, link_id, day, class, dimension::text, value, clicks from click_dimensions where clicks <> 0`,
		`select org_key, link_id, (at at time zone 'UTC')::date, class, dimension, value, count(*) from clicks c join click_agents a on a.id = c.agent_id` + dimensionsOfClicks + ` group by 1, 2, 3, 4, 5, 6`,
	},
	"click_org_dimensions": {
		`select org_key, day, class, dimension::text, value, clicks from click_org_dimensions where clicks <> 0`,
		`select org_key, (at at time zone 'UTC')::date, class, dimension, value, count(*) from clicks c join click_agents a on a.id = c.agent_id` + dimensionsOfClicks + ` group by 1, 2, 3, 4, 5`,
	},
	"click_visitor_days": {
		`select org_key, link_id, day, visitors, unhashed from click_visitor_days where visitors <> 0 or unhashed <> 0`,
		`select org_key, link, (at at time zone 'UTC')::date, count(distinct visitor), count(*) filter (where visitor is null)
			from clicks c cross join lateral unnest(array[c.link_id, '00000000-0000-0000-0000-000000000000']) link where class = 'human' group by 1, 2, 3`,
	},
	"click_links": {
		`select org_key, link_id, human, last_human_at from click_links where human <> 0`,
		`select org_key, link_id, count(*), max(at) from clicks where class = 'human' group by 1, 2`,
	},
}

const dimensionsOfClicks = ` cross join lateral (values ('country', c.country), ('language', c.language), ('referrer', c.referrer),
	('os', case when a.agent like '%iPhone%' then 'ios' when a.agent like '%Windows%' then 'windows' else 'other' end),
	('browser', case when a.agent like '%iPhone%' then 'safari' when a.agent like '%Windows%' then 'chrome' else 'other' end),
	('device', case when a.agent like '%iPhone%' then 'mobile' when a.agent like '%Windows%' then 'desktop' else 'other' end)) d (dimension, value)`

// TestControlsKilledInRollUpsAndReclassificationsCountEachClickOnce kills both controls and the command again and again.
func TestControlsKilledInRollUpsAndReclassificationsCountEachClickOnce(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	w := newTestEnv(t)
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	const clicks, batches = 4000, 40
	path := testenv.Build(t)
	orgKeys, links := make([]string, 2), make([][]string, 2)
	for i := range orgKeys {
		o := w.Organization(catalog.Scale)
		orgKeys[i] = o.OrgKey
		for range 30 {
			link, _, err := w.Store.CreateLink(t.Context(), testenv.Actor, o.ID, store.Unconditional, catalog.Link{Path: "/a", IsActive: true})
			if err != nil {
				t.Fatal(err)
			}
			links[i] = append(links[i], link.ID)
		}
	}
	edge := testkit.Connect(t, w.DB.EdgeURL)
	from, log := time.Now().UTC().Add(-26*time.Hour), uuid.New()
	run := func(sql string, arguments ...any) {
		t.Helper()
		if _, err := edge.Exec(t.Context(), sql, arguments...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	run(`insert into click_agents (agent) values ($1), ($2), ($3)`, "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36", "curl/8.0")
	rows, _ := edge.Query(t.Context(), `select id from click_agents where id <> 0 order by id`)
	agents, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		t.Fatal(err)
	}
	run(`insert into click_logs (log, slot, durable, through) values ($1, 'edge-1', true, $2)`, log, from)

	waiting := func() (n int) {
		if err := w.Pool.QueryRow(t.Context(), `select count(*) from click_batches where rolled_at is null`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var controls [2]*devservers.Program
	start := func() *devservers.Program {
		program, err := devservers.StartProgram(path, []string{"serve"}, append(w.Settings(), "CONTROL_ADDR="+testenv.FreeAddress(t), "CONTROL_ADMIN_ADDR="+testenv.FreeAddress(t), "CONTROL_CANARY=0s"), new(logBuffer))
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	for i := range controls {
		controls[i] = start()
	}
	t.Cleanup(func() {
		for _, control := range controls {
			_ = control.Kill()
		}
	})
	shipped, kills := 0, 0
	ship := func() {
		if shipped == batches {
			return
		}
		shipped++
		tx, err := edge.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(t.Context())
		i := shipped % 2
		at := from.Add(time.Duration(random.IntN(24*60)) * time.Minute).Truncate(time.Millisecond)
		run(`insert into click_batches (slot, log, sequence, first_at, clicks) values ('edge-1', $1, $2, $3, $4)`, log, shipped, at, clicks)
		run(shipManySQL, log, shipped, clicks, orgKeys[i], links[i], at, agents, int16(click.EvidenceLanguage|click.EvidenceHTML))
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A control is killed once it has claimed a batch: a transaction of it is open.
	kill := func(query string) {
		for range 2000 {
			var open bool
			if err := w.Pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database() and xact_start < clock_timestamp() - interval '5 milliseconds' and query ilike $1 and pid <> pg_backend_pid())`, query).Scan(&open); err != nil {
				t.Fatal(err)
			}
			if open {
				break
			}
			time.Sleep(2 * time.Millisecond)
			if waiting() == 0 {
				return
			}
		}
		i := random.IntN(len(controls))
		if err := controls[i].Kill(); err != nil {
			t.Fatal(err)
		}
		kills++
		controls[i] = start()
	}
	deadline := time.Now().Add(3 * time.Minute)
	for shipped < batches || waiting() > 0 {
		for range 4 {
			ship()
		}
		if kills < 15 {
			kill(`%click%`)
		} else {
			time.Sleep(50 * time.Millisecond)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d batches were shipped, %d wait", shipped, batches, waiting())
		}
	}
	if kills < 5 {
		t.Errorf("controls were killed %d times, expected at least 5", kills)
	}
	w.compareTables(batches * clicks)

	// One click in five was one of HEAD.
	w.Exec(`update clicks set evidence = evidence | 1 where ordinal % 5 = 0`)
	killed := 0
	for try := 0; ; try++ {
		cmd := startable(path, w.Settings(), "clicks", "reclassify", "--since="+from.Format(time.DateOnly))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		limit := time.Duration(300+random.IntN(700)+100*try) * time.Millisecond
		select {
		case err := <-ended:
			if err == nil {
				t.Logf("the reclassification ended after %d kills; controls were killed %d times", killed, kills)
				w.compareTables(batches * clicks)
				var head int
				if err := w.Pool.QueryRow(t.Context(), `select count(*) from clicks where class = 'head'`).Scan(&head); err != nil || head != batches*clicks/5 {
					t.Errorf("%d clicks of class head, %v; expected %d", head, err, batches*clicks/5)
				}
				return
			}
			time.Sleep(50 * time.Millisecond) // the lock of the process that was killed may last for a moment
		case <-time.After(limit):
			_ = cmd.Process.Kill()
			<-ended
			killed++
		}
		if try > 200 {
			t.Fatal("the reclassification never ended")
		}
	}
}

func startable(path string, environment []string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(path, arguments...)
	cmd.Env = environment
	return cmd
}

// compareTables compares each table of figures with a count over the raw clicks.
func (w *testEnv) compareTables(clicks int) {
	w.T.Helper()
	var n int
	if err := w.Pool.QueryRow(w.T.Context(), `select count(*) from clicks`).Scan(&n); err != nil || n != clicks {
		w.T.Errorf("%d clicks, %v; expected %d", n, err, clicks)
	}
	for table, sql := range tablesOfClicks {
		var differ, same int
		query := fmt.Sprintf(`with kept as (%s), counted as (%s)
			select (select count(*) from (select * from kept except all select * from counted) a) + (select count(*) from (select * from counted except all select * from kept) b),
			       (select count(*) from counted)`, sql[0], sql[1])
		if err := w.Pool.QueryRow(w.T.Context(), query).Scan(&differ, &same); err != nil || differ > 0 || same == 0 {
			w.T.Errorf("%s: %d rows differ from a count over the clicks with %d rows, %v", table, differ, same, err)
		}
	}
}
