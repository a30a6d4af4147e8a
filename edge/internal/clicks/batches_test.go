package clicks

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"

	"deeplink/shared/click"
	"deeplink/shared/testkit"
)

// clicksOf records n clicks.
func clicksOf(t testing.TB, r *Recorder, n int) {
	t.Helper()
	within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) {
		for range n {
			answer(r, ctx, visit(1))
		}
	})
}

// TestCountersAreShippedOnceHoweverManyBatchesFollow has a journal that was shortened since the counters were shipped.
func TestCountersAreShippedOnceHoweverManyBatchesFollow(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	dir := t.TempDir()
	r := open(t, options(t, database, dir))
	r.store.entries = 4
	r.Register(t.Context())
	c := record{outcome: click.Expired, reason: click.Browser, orgKey: [4]byte([]byte("acme"))}
	for range 5 {
		r.count(&c, r.clock.at(time.Now()))
	}
	total := 5
	for range 12 {
		clicksOf(t, r, 1)
		total++
		round(t, r)
	}
	if n := len(r.active.entries); n > 4 {
		t.Errorf("the journal has %d entries, expected that it was shortened to 4 at most", n)
	}
	crash(t, r)
	run(t, owner, `update click_logs set published_at = published_at - interval '11 seconds'`)
	next := open(t, options(t, database, dir))
	next.Register(t.Context())
	round(t, next)
	if got := value[int](t, owner, counted); got != total {
		t.Errorf("%d clicks, expected %d", got, total)
	}
}

// TestCountersAreShippedInBoundedBatches has more counters than a batch may have.
func TestCountersAreShippedInBoundedBatches(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	o := options(t, database, t.TempDir())
	o.Bytes = 256 << 20
	r := open(t, o)
	r.Register(t.Context())
	c := record{outcome: click.Expired, reason: click.Browser, orgKey: [4]byte([]byte("acme"))}
	const n = maxBatch + 20_000
	for i := range n {
		c.link = [16]byte{byte(i), byte(i >> 8), byte(i >> 16), 6: 0x70}
		r.count(&c, r.clock.at(time.Now()))
	}
	round(t, r)
	if got := value[int](t, owner, counted); got != n {
		t.Errorf("%d clicks, expected %d", got, n)
	}
	if got := value[int](t, owner, `select max(clicks) from click_batches`); got > maxBatch {
		t.Errorf("a batch has %d clicks, expected at most %d", got, maxBatch)
	}
	if behind := value[bool](t, owner, `select through < created_at from click_logs`); behind {
		t.Error("through did not advance")
	}
}

func TestFullCountersOfLinksCountOrganizationsExactly(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	r := open(t, options(t, database, t.TempDir()))
	r.Register(t.Context())
	const n, organizations = 30_000, 1500 // the counters have about 14,000 entries for links, and 2,000 for organizations
	for i := range n {
		org := byte(i % organizations % 250)
		c := record{outcome: click.Expired, reason: click.Browser, orgKey: [4]byte{'a' + org%25, 'a' + org/25, 'a' + byte(i%organizations/250), 'x'},
			link: [16]byte{byte(i), byte(i >> 8), byte(i >> 16), 6: 0x70}}
		r.count(&c, r.clock.at(time.Now()))
	}
	if lost := r.counts.lost.Load(); lost != 0 {
		t.Errorf("%d clicks are lost", lost)
	}
	round(t, r)
	if got := value[int](t, owner, `select sum(clicks) from click_counts`); got != n {
		t.Errorf("%d clicks, expected %d", got, n)
	}
	if got := value[int](t, owner, `select count(*) from (select org_key from click_counts group by 1 having sum(clicks) <> 20) o`); got != 0 {
		t.Errorf("%d organizations have a wrong count", got)
	}
	if got := value[int](t, owner, `select count(*) from click_counts where link_id is null`); got == 0 {
		t.Error("no click was counted without its link: the counters were not full")
	}
}

// TestShippedSegmentsAreUsedAgainBeforeTheyAreSynced ships all clicks in time, and syncs none of them.
func TestShippedSegmentsAreUsedAgainBeforeTheyAreSynced(t *testing.T) {
	database := testkit.NewDatabase(t)
	r := open(t, options(t, database, t.TempDir()))
	r.Register(t.Context())
	for range 40 {
		if err := r.prepare(); err != nil {
			t.Fatal(err)
		}
		clicksOf(t, r, 10_000)
		round(t, r)
	}
	if n := r.counts.unrecorded.Load(); n != 0 {
		t.Errorf("%d clicks have no details, although all clicks were shipped", n)
	}
}

// TestRestartsWhilePostgresIsUnavailableTakeLittleSpace starts a process again and again.
func TestRestartsWhilePostgresIsUnavailableTakeLittleSpace(t *testing.T) {
	database := testkit.NewDatabase(t)
	dir := t.TempDir()
	for range 10 {
		o := options(t, database, dir)
		o.Database.Port = 1 // refused
		r := open(t, o)
		if !r.durable.Load() {
			t.Fatal("the directory is not used")
		}
		clicksOf(t, r, 1)
		crash(t, r)
	}
	if used := diskUsage(t, dir); used > 20<<20 {
		t.Errorf("%d bytes are used of 16 MiB", used)
	}
}

// TestClicksBeforeRegistrationAreLateWhateverTheClockOfTheMachine starts with a clock that is wrong by an hour.
func TestClicksBeforeRegistrationAreLateWhateverTheClockOfTheMachine(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
		database := testkit.NewDatabase(t)
		owner := testkit.Connect(t, database.URL)
		r := open(t, options(t, database, t.TempDir()))
		r.clock.offset.Add(int64(wrong))
		clicksOf(t, r, 1)
		r.Register(t.Context())
		clicksOf(t, r, 1)
		round(t, r)
		if got := value[string](t, owner, `select string_agg(concat_ws(' ', clicks, late), ', ' order by sequence) from click_batches`); got != "1 t, 1 f" {
			t.Errorf("the clock is wrong by %v: batches %s, expected that the first is late", wrong, got)
		}
		if n := value[int](t, owner, `select count(*) from clicks where at > now() + interval '2 seconds'`); n != 0 {
			t.Errorf("the clock is wrong by %v: %d clicks are from the future", wrong, n)
		}
	}
}

// TestBatchThatIsSentAgainIsCountedOnce sends each batch ten times over two connections at once, and again after the log was closed.
func TestBatchThatIsSentAgainIsCountedOnce(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	r := open(t, options(t, database, t.TempDir()))
	r.Register(t.Context())
	other := &shipper{recorder: r, agents: make(map[string]agentID)}
	if err := other.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.disconnect()
	l := r.active
	c := record{outcome: click.Expired, reason: click.Browser, orgKey: [4]byte([]byte("acme"))}
	for range 3 {
		clicksOf(t, r, 100)
		r.count(&c, r.clock.at(time.Now()))
		if err := errors.Join(r.ship.cutCounters(l, r.ship.switchCounters(l)), r.ship.cut(l, r.ship.boundary(), r.clock.raise(r.clock.at(time.Now())))); err != nil {
			t.Fatal(err)
		}
		var senders sync.WaitGroup
		for _, s := range []*shipper{r.ship, other} {
			senders.Go(func() {
				for range 5 {
					for _, b := range l.pending() {
						if _, err := s.send(context.Background(), l, b, false); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		senders.Wait()
		l.acknowledge(l.sequence)
	}
	check := func(when string) {
		t.Helper()
		if got := value[int](t, owner, counted); got != 303 {
			t.Errorf("%s: %d clicks, expected 303", when, got)
		}
	}
	check("sent ten times")
	entries := l.entries
	run(t, owner, `update click_logs set state = 'closed'`)
	for _, b := range entries {
		if _, err := r.ship.send(context.Background(), l, b, false); !errors.Is(err, errGivenUp) {
			t.Errorf("batch %d of a closed log: %v, expected that it is refused", b.sequence, err)
		}
	}
	check("sent after closing")
}

// TestRestoredPostgresHasNoOpenLogWithoutAnEdge restores Postgres to a state from before logs of earlier processes were closed.
func TestRestoredPostgresHasNoOpenLogWithoutAnEdge(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	dir := t.TempDir()
	for range 2 {
		r := open(t, options(t, database, dir))
		r.Register(t.Context())
		for range 2 {
			clicksOf(t, r, 10)
			round(t, r)
		}
		if err := r.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// The first log has both batches in the restored state, the second one only the first.
	run(t, owner, `alter table click_logs disable trigger all; update click_logs set state = 'open', ended_at = null;
		delete from click_batches where sequence = 2 and log = (select log from click_logs order by created_at desc limit 1);
		update click_logs l set through = (select max(through) from click_batches b where b.log = l.log); alter table click_logs enable trigger all`)
	r := open(t, options(t, database, dir))
	r.Register(t.Context())
	round(t, r)
	if got := value[string](t, owner, `select string_agg(concat_ws(' ', state, case when state = 'lost' then ended_at > through end), ', ' order by state, created_at) from click_logs`); got != "open, closed, closed, lost t" {
		t.Errorf("logs are %s", got)
	}
	if n := r.counts.lost.Load(); n != 1 {
		t.Errorf("lost_total is %d, expected 1", n)
	}
}

// TestRecordInProgressIsShippedWhenItsLogIsGivenUp gives up a log while a request writes a record.
func TestRecordInProgressIsShippedWhenItsLogIsGivenUp(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	r := open(t, options(t, database, t.TempDir()))
	r.Register(t.Context())
	clicksOf(t, r, 1)
	round(t, r)
	s := r.current.Load()
	slot := s.reserve(1)
	run(t, owner, `update click_logs set state = 'forgotten'`)
	if err := r.startLog(); err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		time.Sleep(100 * time.Millisecond)
		c := record{outcome: click.Redirect, reason: click.Browser, ruleset: click.Ruleset, orgKey: [4]byte([]byte("acme")), at: time.Now().UnixMilli(), flags: hasLink, link: [16]byte{6: 0x70}}
		c.write(s.slot(slot), s.seed.Load())
	}()
	r.ship.current, r.ship.looked = false, time.Time{}
	round(t, r)
	<-written
	if got := value[int](t, owner, counted); got != 2 {
		t.Errorf("%d clicks, expected 2", got)
	}
}

// TestWallClockOfTheMachineChangesNoAt changes the wall clock in what the runtime returns for the time of requests, as a step of the machine's
// clock does: the monotonic reading stays what it is.
func TestWallClockOfTheMachineChangesNoAt(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	r := open(t, options(t, database, t.TempDir()))
	r.Register(t.Context())
	for _, step := range []time.Duration{0, time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
		within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) {
			at := requestTime(t, ctx)
			if before := *at; step != 0 {
				*at = stepped(t, before, step)
				if moved := at.Round(0).Sub(before.Round(0)); moved != step || at.Sub(before) != 0 {
					t.Fatalf("the wall clock moved by %v and the monotonic clock by %v, expected %v and 0", moved, at.Sub(before), step)
				}
			}
			answer(r, ctx, visit(1))
		})
		round(t, r)
	}
	if got := value[int](t, owner, `select count(*) from clicks where at between now() - interval '1 minute' and clock_timestamp() + interval '2 seconds'`); got != 5 {
		t.Errorf("%d of 5 clicks have the true time", got)
	}
	if late := value[int](t, owner, `select count(*) from click_batches where late`); late != 0 {
		t.Errorf("%d batches are late", late)
	}
}

// requestTime is where fasthttp keeps the time of a request.
func requestTime(t *testing.T, ctx *fasthttp.RequestCtx) *time.Time {
	t.Helper()
	field, found := reflect.TypeFor[fasthttp.RequestCtx]().FieldByName("time")
	if !found || field.Type != reflect.TypeFor[time.Time]() {
		t.Fatal("fasthttp keeps the time of a request elsewhere")
	}
	return (*time.Time)(unsafe.Add(unsafe.Pointer(ctx), field.Offset))
}

// stepped moves the wall clock of a time with a monotonic reading: the 33 bits of seconds above the 30 bits of nanoseconds (package time).
func stepped(t *testing.T, at time.Time, step time.Duration) time.Time {
	t.Helper()
	field, found := reflect.TypeFor[time.Time]().FieldByName("wall")
	if !found {
		t.Fatal("package time keeps the wall clock elsewhere")
	}
	wall := (*uint64)(unsafe.Add(unsafe.Pointer(&at), field.Offset))
	*wall += uint64(int64(step/time.Second)) << 30
	return at
}
