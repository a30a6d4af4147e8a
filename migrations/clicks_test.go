package migrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/click"
	"deeplink/shared/postgres"
	"deeplink/shared/testkit"
)

const (
	openLog   = `insert into click_logs (log, slot, durable, through) values ('80000000-0000-4000-8000-000000000001', 'a', true, '2020-01-01 12:00Z')`
	someBatch = `insert into click_batches (slot, log, sequence, first_at, through, clicks, late, rolled_at)
		values ('a', '80000000-0000-4000-8000-000000000001', 1, '2020-01-01 12:00Z', now(), 1, true, now()) on conflict do nothing`
)

// code runs a statement and returns its SQLSTATE, "" if it succeeds.
func code(t *testing.T, conn *pgx.Conn, statement string) string {
	t.Helper()
	_, err := conn.Exec(t.Context(), statement)
	if err != nil && postgres.Code(err) == "" {
		t.Fatalf("%s: %v", statement, err)
	}
	return postgres.Code(err)
}

func TestPostgresDecidesWhichBatchesOfClicksAreLate(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	owner, edge := testkit.Connect(t, database.URL), testkit.Connect(t, database.EdgeURL)
	for _, test := range []struct {
		name, before, code string
		late               bool
	}{
		{"open", ``, "", false},
		{"open, and the batch is from before through", `update click_logs set through = '2020-01-01 12:00:00.001Z'`, "", true},
		{"forgotten", `update click_logs set state = 'forgotten'`, "", true},
		{"lost", `update click_logs set state = 'lost'`, "", true},
		{"closed", `update click_logs set state = 'closed'`, "55000", false},
		{"of another slot", `delete from click_logs; insert into click_logs (log, slot, durable, through) values ('80000000-0000-4000-8000-000000000001', 'b', true, '2020-01-01Z')`, "23503", false},
		{"not registered", `delete from click_logs`, "23503", false},
	} {
		run(t, owner, `delete from click_batches; delete from click_logs; `+openLog)
		if test.before != "" {
			run(t, owner, test.before)
		}
		if got := code(t, edge, someBatch); got != test.code {
			t.Errorf("log is %s: code %q, expected %q", test.name, got, test.code)
		}
		if test.code != "" {
			continue
		}
		// The edge set both columns; the trigger must not believe it.
		if got := values[bool](t, owner, `select late from click_batches where rolled_at is null`); len(got) != 1 || got[0] != test.late {
			t.Errorf("log is %s: late %v, expected one batch, %v", test.name, got, test.late)
		}
		run(t, edge, someBatch)
		if n := values[int64](t, owner, `select count(*) from click_batches`)[0]; n != 1 {
			t.Errorf("log is %s: %d batches after it was sent again", test.name, n)
		}
	}
}

func TestLogCannotBeForgottenBetweenTheCheckAndTheCommitOfABatch(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	owner, edge := testkit.Connect(t, database.URL), testkit.Connect(t, database.EdgeURL)
	run(t, owner, openLog)
	tx, err := edge.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	run(t, edge, someBatch)
	if got := code(t, owner, `set lock_timeout = '50ms'; update click_logs set state = 'forgotten'`); got != postgres.LockNotAvailable {
		t.Errorf("the log was forgotten while a batch was being inserted: code %q, expected that it waits", got)
	}
}

func TestThroughAndStateOfALogGoForwardOnly(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
	run(t, conn, openLog)
	through := func() time.Time { return values[time.Time](t, conn, `select through from click_logs`)[0] }
	run(t, conn, `update click_logs set through = '2019-01-01Z'`)
	if got := through(); got.Year() != 2020 {
		t.Errorf("through decreased to %v", got)
	}
	run(t, conn, `update click_logs set through = now() + interval '1 hour'`)
	if got := through(); time.Until(got) > time.Second || time.Since(got) > time.Minute {
		t.Errorf("through is %v, expected the clock", got)
	}
	for _, step := range []struct{ state, code string }{
		{"off", "55000"}, {"forgotten", ""}, {"open", "55000"}, {"closed", ""}, {"closed", ""}, {"forgotten", "55000"}, {"lost", "55000"}, {"open", "55000"},
	} {
		if got := code(t, conn, `update click_logs set state = '`+step.state+`'`); got != step.code {
			t.Errorf("to %s: code %q, expected %q", step.state, got, step.code)
		}
	}
	if n := values[int64](t, conn, `select count(*) from click_logs where ended_at is not null`)[0]; n != 1 {
		t.Error("the log has no end")
	}
}

// TestAsOfIsTheLeastOfWhatCanStillChange checks advance_click_as_of step by step, and that click_floor is not below it.
func TestAsOfIsTheLeastOfWhatCanStillChange(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
	advance := func() time.Time {
		t.Helper()
		return values[time.Time](t, conn, `select advance_click_as_of()`)[0].UTC()
	}
	recent := func(at time.Time) bool { return time.Since(at).Abs() < time.Minute }
	if got := advance(); !recent(got) {
		t.Errorf("without logs: %v, expected the clock", got)
	}
	run(t, conn, `update click_as_of set as_of = '2020-01-01Z'; `+openLog)
	noon := time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)
	if got := advance(); !got.Equal(noon) {
		t.Errorf("with an open log: %v, expected its through", got)
	}
	run(t, conn, someBatch+`; update click_logs set through = now()`)
	if got := advance(); !got.Equal(noon) {
		t.Errorf("with a batch that waits: %v, expected its first click", got)
	}
	run(t, conn, `insert into click_batches (slot, log, sequence, first_at, clicks) values ('a', '80000000-0000-4000-8000-000000000001', 2, '2019-01-01Z', 1)`)
	run(t, conn, `update click_batches set rolled_at = now() where sequence = 1`)
	through := values[time.Time](t, conn, `select through from click_logs`)[0].UTC()
	if got := advance(); !got.Equal(through) {
		t.Errorf("with a late batch: %v, expected the through of the open log, %v", got, through)
	}
	run(t, conn, `update click_logs set state = 'forgotten'`)
	last := advance()
	if !last.After(through) {
		t.Errorf("after the log was forgotten: %v, expected the clock", last)
	}
	run(t, conn, `insert into click_logs (log, slot, durable, through) values (gen_random_uuid(), 'b', true, '2020-01-01Z')`)
	if got := advance(); !got.Equal(last) {
		t.Errorf("after a log with an earlier through: %v, expected that it stays at %v", got, last)
	}
	run(t, conn, `update click_as_of set as_of = now() + interval '1 hour'`)
	if floor := values[time.Time](t, conn, `select click_floor()`)[0]; time.Until(floor) < 59*time.Minute {
		t.Errorf("the floor is %v, expected as_of", floor)
	}
}

func TestFloorWaitsForAnAdvanceThatMayNotHaveSeenTheLog(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	control, edge := testkit.Connect(t, database.ControlURL), testkit.Connect(t, database.EdgeURL)
	tx, err := control.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	run(t, control, `select advance_click_as_of()`)
	if got := code(t, edge, `set lock_timeout = '50ms'; select click_floor()`); got != postgres.LockNotAvailable {
		t.Errorf("code %q, expected that the floor waits", got)
	}
	other := testkit.Connect(t, database.ControlURL)
	if got := code(t, other, `begin isolation level repeatable read; select advance_click_as_of()`); got == "" {
		t.Error("advance_click_as_of ran in a snapshot from before its lock")
	}
}

func TestAgentDictionaryTakesABoundedNumberOfEntriesPerDay(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	owner, edge := testkit.Connect(t, database.URL), testkit.Connect(t, database.EdgeURL)
	run(t, edge, `insert into click_agents (agent) values ('a'), ('b'), ('a') on conflict do nothing`)
	run(t, owner, `update click_agent_days set entries = 99999`)
	run(t, edge, `insert into click_agents (agent) values ('a'), ('c'), ('d') on conflict do nothing`)
	if diff := cmp.Diff([]string{"(other)", "a", "b", "c"}, values[string](t, owner, `select agent from click_agents order by id`)); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}

func TestSaltIsTheSameForAllAndExistsForThreeDaysOnly(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	a, b := testkit.Connect(t, database.EdgeURL), testkit.Connect(t, database.EdgeURL)
	const salts = `select encode(click_salt((now() at time zone 'UTC')::date + n), 'hex') from generate_series(-1, 1) n`
	first, second := values[string](t, a, salts), values[string](t, b, salts)
	if diff := cmp.Diff(first, second); diff != "" || len(first[0]) != 32 || first[0] == first[1] || first[1] == first[2] {
		t.Errorf("salts %v and %v", first, second)
	}
	for _, day := range []string{"-2", "2"} {
		if got := code(t, a, `select click_salt((now() at time zone 'UTC')::date + `+day+`)`); got != "22023" {
			t.Errorf("day %s: code %q, expected that there is no salt", day, got)
		}
	}
}

func TestClicksOfADayMoveIntoItsPartition(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
	const insert = `insert into clicks (log, sequence, ordinal, at, org_key, outcome, class, reason, ruleset, evidence)
		select '80000000-0000-4000-8000-000000000001', 1, n, now() + n * interval '1 day', 'acme', 'redirect', 'human', 'browser', 1, 0 from generate_series(-1, 9) n`
	run(t, conn, openLog+`; `+someBatch+`; `+insert)
	places := func() []int64 {
		return values[int64](t, conn, `select count(*) from clicks group by tableoid = 'clicks_other'::regclass order by 1`)
	}
	if diff := cmp.Diff([]int64{3, 8}, places()); diff != "" {
		t.Errorf("before (-expected +got):\n%s", diff)
	}
	if n := values[int](t, conn, `select make_click_partitions(8)`)[0]; n != 1 {
		t.Errorf("%d partitions were made, expected 1", n)
	}
	if diff := cmp.Diff([]int64{2, 9}, places()); diff != "" {
		t.Errorf("after (-expected +got):\n%s", diff)
	}
	// Of a partition that is due, nothing is dropped before its clicks are counted.
	run(t, conn, `create table clicks_20010101 partition of clicks for values from ('2001-01-01Z') to ('2001-01-02Z');
		insert into clicks select log, '2001-01-01 12:00Z', visitor, sequence, ordinal, agent_id, outcome, class, reason, ruleset, evidence, link_id, org_key from clicks limit 1`)
	for _, want := range []int{0, 1} {
		if n := values[int](t, conn, `select drop_click_partitions('0')`)[0]; n != want {
			t.Errorf("%d partitions were dropped, expected %d", n, want)
		}
		run(t, conn, `update click_batches set rolled_at = now()`)
	}
}

func TestEnumsOfClicksAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
	for name, expected := range map[string][]string{"click_outcome": click.Outcomes(), "click_class": click.Classes(), "click_reason": click.Reasons()} {
		if diff := cmp.Diff(expected, values[string](t, conn, `select unnest(enum_range(null::`+name+`))::text`)); diff != "" {
			t.Errorf("%s (-expected +got):\n%s", name, diff)
		}
	}
}
