package clicks

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/valyala/fasthttp"

	"deeplink/shared/testkit"
)

// movedClock makes the protocol read a clock of Postgres that a test can move: clock_timestamp() in a schema that comes before pg_catalog.
const movedClock = `
	create schema moved;
	create table moved.clock (by interval not null);
	insert into moved.clock values ('0');
	create function moved.clock_timestamp() returns timestamptz language sql as $$ select pg_catalog.clock_timestamp() + by from moved.clock $$;
	grant usage on schema moved to public;
	grant select on moved.clock to public;
	alter function click_batch_arrives() set search_path = moved, pg_catalog, public;
	alter function click_log_changes() set search_path = moved, pg_catalog, public;
	alter function click_floor() set search_path = moved, pg_catalog, public;
	alter function click_salt(date) set search_path = moved, pg_catalog, public;
	alter function advance_click_as_of() set search_path = moved, pg_catalog, public;
	alter table click_logs alter through set default moved.clock_timestamp(), alter published_at set default moved.clock_timestamp(),
		alter created_at set default moved.clock_timestamp()`

// TestClockOfPostgresIsSetBack sets Postgres's clock back by 5 s while clicks are recorded: nothing that is counted is from before asOf, and every
// click keeps a time that is not later than 5 s after the true one.
func TestClockOfPostgresIsSetBack(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner, control := testkit.Connect(t, database.URL), testkit.Connect(t, database.ControlURL)
	run(t, owner, movedClock)
	o := options(t, database, t.TempDir())
	o.Database.RuntimeParams["search_path"] = "moved, pg_catalog, public"
	r := open(t, o)
	r.Register(t.Context())
	recorded := 0
	step := func() {
		t.Helper()
		asOf := value[time.Time](t, owner, `select as_of from click_as_of`)
		within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, visit(1)) })
		recorded++
		round(t, r)
		if n := value[int](t, owner, `select count(*) from click_batches where rolled_at is null and first_at < date_trunc('milliseconds', $1::timestamptz)`, asOf); n != 0 {
			t.Errorf("a click is from before asOf")
		}
		run(t, control, `update click_batches set rolled_at = now() where rolled_at is null`)
		advanced := advance(t, control)
		if advanced.Before(asOf) {
			t.Errorf("asOf went back from %v to %v", asOf, advanced)
		}
	}
	for range 3 {
		step()
	}
	before := value[time.Time](t, owner, `select through from click_logs`)
	run(t, owner, `update moved.clock set by = '-5 seconds'`)
	for range 3 {
		step()
	}
	// Another process starts while Postgres's clock is behind everything that was published.
	if err := r.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Incarnation = uuid.New()
	r = open(t, o)
	r.Register(t.Context())
	for range 3 {
		step()
	}
	if n := value[int](t, owner, `select count(*) from clicks where at < $1`, before); n > 3 {
		t.Errorf("%d clicks are from before the time that was published when the clock was set back, expected at most 3", n)
	}
	if n := value[int](t, owner, `select count(*) from clicks where at > now() + interval '1 second'`); n != 0 {
		t.Errorf("%d clicks are from the future", n)
	}
	run(t, owner, `update moved.clock set by = '0'`)
	time.Sleep(10 * time.Millisecond)
	for range 3 {
		step()
	}
	if late := value[int](t, owner, `select count(*) from click_batches where late`); late != 0 {
		t.Errorf("%d batches are late", late)
	}
	if got := value[int](t, owner, counted); got != recorded {
		t.Errorf("%d clicks, expected %d", got, recorded)
	}
}

// advance advances asOf as a roll-up does.
func advance(t *testing.T, control *pgx.Conn) time.Time {
	t.Helper()
	return value[time.Time](t, control, `select advance_click_as_of()`)
}
