package clicks

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"

	"deeplink/shared/click"
)

// classesOf are the requests for classes that the tests use.
var classesOf = [][]click.Class{{click.Human}, {click.Bot, click.Head}, PublicClasses}

// counted is what the test counts over the shipped clicks.
func (w *testEnv) countWhere(match func(at time.Time, link *uuid.UUID, class click.Class, outcome click.Outcome) bool) (n int64) {
	for _, c := range w.shipped {
		if match(c.at, &c.link, c.class(), c.outcome) {
			n++
		}
	}
	for _, c := range w.counted {
		if match(c.quarter, c.link, c.class, c.outcome) {
			n += c.clicks
		}
	}
	return n
}

func has[T comparable](all []T, v T) bool {
	for _, x := range all {
		if x == v {
			return true
		}
	}
	return false
}

// TestRowsOfEveryTimeZoneEqualACountOverTheClicks compares each interval, across changes of the offset, with a count that formats each click in
// the zone.
func TestRowsOfEveryTimeZoneEqualACountOverTheClicks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	random := seeded(t)
	o, links := w.organization("acme", 2)
	from, to := time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 20, 0, 0, 0, 0, time.UTC)
	l := w.log("a", from)
	for at := from; at.Before(to); at = at.Add(24 * time.Hour) {
		l.ship(at.Add(24*time.Hour), someClicks(random, "acme", links, at, at.Add(24*time.Hour), 60))
	}
	// Clicks around the changes of offset in autumn, too.
	autumn := time.Date(2026, 8, 25, 0, 0, 0, 0, time.UTC)
	for at := autumn; at.Before(autumn.AddDate(0, 0, 16)); at = at.Add(24 * time.Hour) {
		l.ship(time.Time{}, someClicks(random, "acme", links, at, at.Add(24*time.Hour), 60))
	}
	l.ship(time.Time{}, someClicks(random, "acme", links, time.Date(2026, 9, 25, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC), 1500))
	w.rollUp()
	r := w.reader()
	for _, zone := range []string{"Asia/Kathmandu", "Asia/Kolkata", "America/St_Johns", "Pacific/Chatham", "Australia/Lord_Howe", "Europe/Berlin", "America/Santiago", "UTC"} {
		location, ok := Location(zone)
		if !ok {
			t.Fatal(zone)
		}
		for _, span := range [][2]time.Time{{from.Add(45 * time.Minute), to}, {autumn, time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)}} {
			for _, interval := range Intervals[1:] {
				q := FigureQuery{From: span[0], To: span[1], Start: span[0], Location: location, Interval: interval, Classes: PublicClasses, Limit: 1000}
				var rows []Row
				for more := true; more; {
					f, err := r.Figures(t.Context(), o, q)
					if err != nil {
						t.Fatal(err)
					}
					rows = append(rows, f.Rows...)
					if more = f.NextStart != nil; more {
						q.Start = *f.NextStart
					}
				}
				checkRows(t, w, zone, location, interval, span, rows)
			}
		}
	}
}

// label names the interval of an instant, with the offset for hours.
func label(at time.Time, interval Interval, location *time.Location) string {
	at = at.In(location)
	switch interval {
	case Hourly:
		return at.Format("2006-01-02T15 -07:00:00")
	case Daily:
		return at.Format(time.DateOnly)
	case Weekly:
		year, week := at.ISOWeek()
		return fmt.Sprint(year, "-", week)
	default:
		return at.Format("2006-01")
	}
}

func checkRows(t *testing.T, w *testEnv, zone string, location *time.Location, interval Interval, span [2]time.Time, rows []Row) {
	t.Helper()
	expected := map[string]int64{}
	for at := span[0]; at.Before(span[1]); at = at.Add(Quarter) {
		expected[label(at, interval, location)] += 0
	}
	w.countWhere(func(at time.Time, _ *uuid.UUID, class click.Class, outcome click.Outcome) bool {
		if !at.Before(span[0]) && at.Before(span[1]) && outcome != click.Unknown {
			expected[label(at, interval, location)]++
		}
		return false
	})
	seen := map[string]bool{}
	end := span[0]
	for _, row := range rows {
		name := label(row.Start, interval, location)
		if seen[name] || !row.Start.Equal(end) || !row.Start.Before(row.End) {
			t.Errorf("%s by %s: row %s from %v to %v does not follow %v", zone, interval, name, row.Start, row.End, end)
		}
		if seen[name], end = true, row.End; row.Clicks != expected[name] {
			t.Errorf("%s by %s: %d clicks in %s (%v to %v), expected %d", zone, interval, row.Clicks, name, row.Start, row.End, expected[name])
		}
	}
	if !end.Equal(span[1]) || len(seen) != len(expected) {
		t.Errorf("%s by %s: %d rows until %v, expected %d until %v", zone, interval, len(seen), end, len(expected), span[1])
	}
}

func TestFiguresEqualACountOverTheClicks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	random := seeded(t)
	o, links := w.organization("acme", 3)
	from := daysAgo(4)
	l := w.log("a", from)
	for i := range 4 {
		at := from.AddDate(0, 0, i)
		l.ship(time.Time{}, someClicks(random, "acme", links, at, at.AddDate(0, 0, 1), 200),
			countedClicks{"acme", nil, click.Unknown, click.Human, at, 7, false}, countedClicks{"acme", &links[0], click.Redirect, click.Human, at, 5, false},
			countedClicks{"acme", nil, click.Landing, click.Human, at, 3, false})
	}
	w.rollUp()
	r := w.reader()
	for range 60 {
		q := FigureQuery{
			From: from.Add(time.Duration(random.IntN(100)) * Quarter), To: daysAgo(0).Add(-time.Duration(random.IntN(100)) * Quarter), Location: time.UTC, Interval: NoInterval,
			Classes: classesOf[random.IntN(3)], Limit: 1000,
		}
		if random.IntN(2) == 0 {
			q.From, q.To = from, daysAgo(random.IntN(3))
		}
		if random.IntN(2) == 0 {
			q.Outcomes = []click.Outcome{click.Redirect, click.Unknown}
		}
		if random.IntN(2) == 0 {
			q.Links.LinkID = links[random.IntN(3)].String()
		}
		q.GroupBy = []GroupBy{ByLink, ByClass, ByOutcome, NoGroups}[random.IntN(4)]
		f, err := r.Figures(t.Context(), o, q)
		if err != nil {
			t.Fatal(err)
		}
		groups := map[string]int64{}
		expected := w.countWhere(func(at time.Time, link *uuid.UUID, class click.Class, outcome click.Outcome) bool {
			matches := !at.Before(q.From) && at.Before(q.To) && has(q.Classes, class) && (q.Links.LinkID == "" || link != nil && link.String() == q.Links.LinkID)
			if q.Outcomes == nil {
				matches = matches && outcome != click.Unknown
			} else {
				matches = matches && has(q.Outcomes, outcome)
			}
			return matches
		})
		if f.Totals.Clicks != expected {
			t.Errorf("%+v: %d clicks, expected %d", q, f.Totals.Clicks, expected)
		}
		for _, row := range f.Rows {
			key := "null"
			if row.Key != nil {
				key = *row.Key
			}
			groups[key] = row.Clicks
			expected -= row.Clicks
		}
		if q.GroupBy != NoGroups && expected != 0 {
			t.Errorf("%+v: the groups differ from the total by %d: %v", q, expected, groups)
		}
	}
}

func TestVisitorDaysAreExact(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	random := seeded(t)
	o, links := w.organization("acme", 3)
	from := daysAgo(3)
	l := w.log("a", from)
	type visit struct {
		link    uuid.UUID
		day     time.Time
		visitor int64
	}
	var clicks []shippedClick
	ofLink, ofOrg := map[visit]bool{}, map[visit]bool{}
	for range 2000 {
		c := shippedClick{orgKey: "acme", link: links[random.IntN(3)], at: from.Add(time.Duration(random.IntN(72*60)) * time.Minute), outcome: click.Redirect, agent: random.IntN(3), visitor: ptr(int64(random.IntN(300)))}
		clicks = append(clicks, c)
		if c.class() == click.Human {
			ofLink[visit{c.link, dayOf(c.at), *c.visitor}], ofOrg[visit{uuid.Nil, dayOf(c.at), *c.visitor}] = true, true
		}
	}
	l.ship(time.Time{}, clicks[:900])
	w.rollUp()
	l.ship(time.Time{}, clicks[900:])
	w.rollUp()
	r := w.reader()
	f, err := r.Figures(t.Context(), o, FigureQuery{From: from, To: daysAgo(0), Location: time.UTC, Interval: NoInterval, GroupBy: ByLink, Classes: []click.Class{click.Human}, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if *f.Totals.VisitorDays != int64(len(ofOrg)) || f.Approximate {
		t.Errorf("visitorDays %d, approximate %v; expected exactly %d", *f.Totals.VisitorDays, f.Approximate, len(ofOrg))
	}
	sum := int64(0)
	for _, row := range f.Rows {
		sum += *row.VisitorDays
	}
	if len(f.Rows) != 3 || sum != int64(len(ofLink)) {
		t.Errorf("%d rows with %d visitorDays, expected 3 with %d", len(f.Rows), sum, len(ofLink))
	}
	series, err := r.Figures(t.Context(), o, FigureQuery{From: from, To: daysAgo(0), Start: from, Location: time.UTC, Interval: Daily, Classes: []click.Class{click.Human}, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range series.Rows {
		n := int64(0)
		for v := range ofOrg {
			if v.day.Equal(row.Start) {
				n++
			}
		}
		if row.VisitorDays == nil || *row.VisitorDays != n {
			t.Errorf("%v: visitorDays %v, expected %d", row.Start, row.VisitorDays, n)
		}
	}
}

func TestSketchIsWithinTwoAndAHalfPercent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newSketch()
	for n := 1; n <= 3_000_000; n++ {
		s.add(int64(random.Uint64()))
		if n%500_000 == 0 && n >= maxVisitorSet {
			if got := float64(s.estimate()); got < 0.975*float64(n) || got > 1.025*float64(n) {
				t.Errorf("the estimate for %d is %.0f", n, got)
			}
		}
	}
}

func TestAscendingWalkHasEachClickThatIsNotLateOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	random := seeded(t)
	o, links := w.organization("acme", 2)
	from := daysAgo(2)
	w.exec(w.owner, `update click_as_of set as_of = $1`, from)
	l := w.log("a", from)
	r := w.reader()
	seen := map[string]int{}
	request := PageRequest{From: from, To: daysAgo(-1), Limit: 17, Classes: PublicClasses}
	walk := func() {
		for {
			page, err := r.Clicks(t.Context(), o, request)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Clicks {
				seen[c.ID]++
				if !c.Late && !c.At.Before(page.AsOf) {
					t.Errorf("click at %v, asOf %v", c.At, page.AsOf)
				}
			}
			if request.After = page.Next; len(page.Clicks) < request.Limit {
				return
			}
		}
	}
	for i := range 8 {
		at := from.Add(time.Duration(i) * time.Hour)
		l.ship(at.Add(time.Hour), someClicks(random, "acme", links, at, at.Add(time.Hour), 40))
		if i%2 == 0 {
			w.rollUp()
		}
		walk()
	}
	w.rollUp()
	walk()
	if len(seen) != 320 {
		t.Errorf("%d clicks, expected 320", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("click %s was returned %d times", id, n)
		}
	}
}

func TestMissingNamesEachLogThatMayLackClicks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o, links := w.organization("acme", 1)
	through := daysAgo(1)
	waiting, memory := w.log("edge-1", through), w.log("edge-2", through)
	w.exec(w.owner, `update click_logs set published_at = now() - interval '20 seconds'`)
	w.exec(w.owner, `update click_logs set durable = false where log = $1`, memory.id)
	w.exec(w.owner, `insert into click_logs (log, slot, state, durable) values (gen_random_uuid(), 'edge-3', 'off', false)`)
	w.exec(w.owner, `insert into edges (slot, incarnation, lease_ms, hold_ms) values ('edge-4', gen_random_uuid(), 1, 1), ('edge-1', $1, 1, 1)`, waiting.id)
	r := w.reader()
	states := func() string {
		t.Helper()
		f, err := r.Figures(t.Context(), o, FigureQuery{From: daysAgo(5), To: daysAgo(-1), Location: time.UTC, Interval: NoInterval, Classes: PublicClasses})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, m := range f.Missing {
			text += fmt.Sprintf("%s %s %v %v, ", m.Slot, m.State, m.Since != nil, m.Until != nil)
		}
		return text
	}
	if got := states(); got != "edge-4 off false false, edge-3 off false false, edge-1 waiting true false, edge-2 waiting true false, " {
		t.Errorf("missing: %s", got)
	}
	w.rollUp()
	if asOf := one[time.Time](w, `select as_of from click_as_of`); !asOf.After(through) {
		t.Errorf("asOf decreased to %v", asOf)
	}
	// A process that takes over the slot of a log in memory.
	w.exec(w.owner, `insert into click_logs (log, slot, durable) values (gen_random_uuid(), 'edge-2', false)`)
	if err := w.housekeeping().Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := states(); got != "edge-4 off false false, edge-3 off false false, edge-1 waiting true false, edge-2 lost true true, " {
		t.Errorf("missing: %s", got)
	}
	waiting.ship(time.Time{}, []shippedClick{{orgKey: "acme", link: links[0], at: through, outcome: click.Redirect}})
	w.rollUp()
	w.check()
}

func TestHousekeepingDeletesWhatHasExpired(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, links := w.organization("acme", 1)
	l := w.log("a", daysAgo(60))
	l.ship(time.Time{}, []shippedClick{{orgKey: "acme", link: links[0], at: daysAgo(3), outcome: click.Redirect, visitor: ptr(int64(1))}})
	w.rollUp()
	w.exec(w.owner, `update click_logs set state = 'closed'; update click_batches set rolled_at = now() - interval '1 hour'`)
	w.exec(w.owner, `insert into click_salts (day, salt) select (now() at time zone 'UTC')::date - n, substring(sha256('x') for 16) from generate_series(1, 4) n`)
	w.exec(w.owner, `insert into click_agents (agent, seen_on) values ('old', now() - interval '40 days'), ('recent', now() - interval '20 days')`)
	w.exec(w.owner, `insert into click_quarters (org_key, quarter, class, outcome, clicks) values ('acme', date_trunc('day', now() - interval '402 days'), 'human', 'redirect', 1)`)
	if err := w.housekeeping().Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(one[int](w, `select count(*) from clicks`), one[int](w, `select count(*) from click_batches`), one[int](w, `select count(*) from click_salts`),
		one[int](w, `select count(*) from click_agents where agent in ('old', 'recent')`), one[int](w, `select count(*) from click_visitors`), one[int](w, `select count(*) from click_quarters`))
	if got != "1 0 2 1 2 1" {
		t.Errorf("clicks, batches, salts, agents, visitors, quarters: %s, expected 1 0 2 1 2 1", got)
	}
	w.retention = 0
	if err := w.housekeeping().Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := one[int](w, `select count(*) from clicks`) + one[int](w, `select count(*) from click_visitors`); n != 0 {
		t.Errorf("%d clicks and visitors were kept without retention", n)
	}
}
