package clicks

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"deeplink/shared/click"
)

// zonesWithChanges are zones with offsets of half hours and quarters, changes of half an hour, and changes at midnight.
var zonesWithChanges = []string{
	"Asia/Kathmandu", "Asia/Kolkata", "America/St_Johns", "Pacific/Chatham", "Australia/Lord_Howe", "Europe/Berlin", "America/Santiago", "UTC",
}

// changes returns the changes of the offset in a time zone in [from, to).
func changes(location *time.Location, from, to time.Time) (all []time.Time) {
	for at := from; ; {
		_, end := at.In(location).ZoneBounds()
		if end.IsZero() || !end.Before(to) {
			return all
		}
		all, at = append(all, end.UTC()), end
	}
}

// TestRandomRangesOfEveryZoneEqualACountOverTheClicks compares random ranges with a count that formats each click in the zone, most of them
// around a change of the offset.
func TestRandomRangesOfEveryZoneEqualACountOverTheClicks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	random := seeded(t)
	o, links := w.organization("acme", 3)
	first, last := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	l := w.log("a", first)
	for month := first; month.Before(last); month = month.AddDate(0, 1, 0) {
		l.ship(time.Time{}, someClicks(random, "acme", links, month, month.AddDate(0, 1, 0), 120))
		w.rollUp()
	}
	var around []time.Time
	locations := map[string]*time.Location{}
	for _, zone := range zonesWithChanges {
		location, ok := Location(zone)
		if !ok {
			t.Fatal(zone)
		}
		locations[zone] = location
		for _, change := range changes(location, first, last) {
			around = append(around, change)
			l.ship(time.Time{}, someClicks(random, "acme", links, change.Add(-4*time.Hour), change.Add(4*time.Hour), 100))
		}
	}
	if len(around) != 2*5 {
		t.Fatalf("%d changes of the offset, expected two of each zone that has them", len(around))
	}
	w.rollUp()
	r := w.reader()
	for range 300 {
		zone := zonesWithChanges[random.IntN(len(zonesWithChanges))]
		location := locations[zone]
		q := FigureQuery{Location: location, Interval: Intervals[random.IntN(len(Intervals))], Classes: classesOf[random.IntN(len(classesOf))], Limit: 1 + random.IntN(1000)}
		span := time.Duration(1+random.IntN(96*4)) * Quarter
		if q.Interval == Weekly || q.Interval == Monthly {
			span *= 20
		}
		q.From = around[random.IntN(len(around))].Add(-time.Duration(random.Int64N(int64(span)))).Truncate(Quarter)
		q.To = q.From.Add(span)
		if q.From.Before(first) || q.To.After(last) {
			continue
		}
		if random.IntN(3) == 0 {
			q.From = StartOf(DateOf(q.From, location), location)
		}
		if random.IntN(3) == 0 {
			q.Links.LinkID = links[random.IntN(len(links))].String()
		}
		q.Start = q.From
		checkRange(t, w, r, o, q, zone)
	}
}

// checkRange reads all pages of a query and compares rows and totals.
func checkRange(t *testing.T, w *testEnv, r *Reader, o Organization, q FigureQuery, zone string) {
	t.Helper()
	matches := func(at time.Time, link *uuid.UUID, class click.Class) bool {
		return !at.Before(q.From) && at.Before(q.To) && has(q.Classes, class) && (q.Links.LinkID == "" || link.String() == q.Links.LinkID)
	}
	rows := map[string]int64{}
	for at := q.From; q.Interval != NoInterval && at.Before(q.To); at = at.Add(Quarter) {
		rows[label(at, q.Interval, q.Location)] = 0
	}
	expected := len(rows)
	total := w.countWhere(func(at time.Time, link *uuid.UUID, class click.Class, _ click.Outcome) bool {
		if !matches(at, link, class) {
			return false
		}
		if q.Interval != NoInterval {
			rows[label(at, q.Interval, q.Location)]++
		}
		return true
	})
	seen, end := 0, q.From
	for more := true; more; {
		f, err := r.Figures(t.Context(), o, q)
		if err != nil {
			t.Fatal(err)
		}
		if f.Totals.Clicks != total {
			t.Errorf("%s, %v to %v: %d clicks, expected %d", zone, q.From, q.To, f.Totals.Clicks, total)
		}
		for _, row := range f.Rows {
			name := label(row.Start, q.Interval, q.Location)
			if n, ok := rows[name]; !ok || row.Clicks != n || !row.Start.Equal(end) || label(row.End.Add(-time.Millisecond), q.Interval, q.Location) != name {
				t.Errorf("%s by %s, %v to %v: %d clicks in the row from %v to %v, expected %d from %v on", zone, q.Interval, q.From, q.To, row.Clicks, row.Start, row.End, n, end)
			}
			delete(rows, name)
			seen, end = seen+1, row.End
		}
		if more = f.NextStart != nil; more {
			q.Start = *f.NextStart
		}
	}
	if q.Interval != NoInterval && (seen != expected || !end.Equal(q.To)) {
		t.Errorf("%s by %s, %v to %v: %d rows until %v, expected %d", zone, q.Interval, q.From, q.To, seen, end, expected)
	}
}

func TestStartOfADateWithoutMidnightIsTheChangeOfTheOffset(t *testing.T) {
	location, _ := Location("America/Santiago")
	// On 2026-09-06 the clock goes from 00:00 (UTC-4) to 01:00 (UTC-3).
	change := time.Date(2026, 9, 6, 4, 0, 0, 0, time.UTC)
	if got := StartOf(time.Date(2026, 9, 6, 0, 0, 0, 0, time.UTC), location); !got.Equal(change) {
		t.Errorf("the date starts at %v, expected %v", got, change)
	}
	evening := time.Date(2026, 9, 5, 0, 30, 0, 0, location)
	if got := StartOf(DateOf(evening, location).AddDate(0, 0, 1), location); !got.Equal(change) {
		t.Errorf("the day after %v starts at %v, expected %v", evening, got, change)
	}
}

// TestFiguresOfPartsOfDaysEqualACountOverTheClicks has ranges whose whole days are read from the table of days and their ends from that of
// quarters, with every filter of links.
func TestFiguresOfPartsOfDaysEqualACountOverTheClicks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	random := seeded(t)
	o, links := w.organization("acme", 4)
	w.exec(w.owner, `update links set tags = '{x}' where id = any ($1)`, links[:2])
	from := daysAgo(6)
	l := w.log("a", from)
	for i := range 6 {
		at := from.AddDate(0, 0, i)
		l.ship(time.Time{}, someClicks(random, "acme", links, at, at.AddDate(0, 0, 1), 200), countedClicks{"acme", nil, click.Landing, click.Human, at, 3, false})
	}
	w.rollUp()
	r := w.reader()
	for range 60 {
		q := FigureQuery{
			From: from.Add(time.Duration(random.IntN(200)) * Quarter), To: daysAgo(0).Add(-time.Duration(random.IntN(200)) * Quarter), Location: time.UTC,
			Interval: NoInterval, GroupBy: []GroupBy{ByLink, ByTag, ByClass}[random.IntN(3)], Classes: PublicClasses, Limit: 1000,
		}
		tagged := random.IntN(2) == 0
		if tagged {
			q.Links.Tag = "x"
		}
		f, err := r.Figures(t.Context(), o, q)
		if err != nil {
			t.Fatal(err)
		}
		expected := w.countWhere(func(at time.Time, link *uuid.UUID, _ click.Class, _ click.Outcome) bool {
			return !at.Before(q.From) && at.Before(q.To) && (!tagged || link != nil && (*link == links[0] || *link == links[1]))
		})
		sum := int64(0)
		for _, row := range f.Rows {
			sum += row.Clicks
		}
		if f.Totals.Clicks != expected || sum != expected {
			t.Errorf("by %s, tagged %t, %v to %v: %d clicks, %d in groups, expected %d", q.GroupBy, tagged, q.From, q.To, f.Totals.Clicks, sum, expected)
		}
	}
}

func TestRowsOfWholeDaysHaveVisitorsInARangeOfPartsOfDays(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o, links := w.organization("acme", 1)
	from := daysAgo(3)
	l := w.log("a", from)
	for i := range 3 {
		l.ship(time.Time{}, []shippedClick{{orgKey: "acme", link: links[0], at: from.AddDate(0, 0, i).Add(12 * time.Hour), outcome: click.Redirect, visitor: ptr(int64(1))}})
	}
	w.rollUp()
	q := FigureQuery{From: from.Add(time.Hour), To: daysAgo(0).Add(-time.Hour), Location: time.UTC, Interval: Daily, Classes: []click.Class{click.Human}, Limit: 10}
	q.Start = q.From
	f, err := w.reader().Figures(t.Context(), o, q)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Rows) != 3 || f.Rows[0].VisitorDays != nil || f.Rows[1].VisitorDays == nil || *f.Rows[1].VisitorDays != 1 || f.Rows[2].VisitorDays != nil || f.Totals.VisitorDays != nil || f.Approximate {
		t.Errorf("%+v, totals %+v, approximate %v; expected a visitor in the second row only", f.Rows, f.Totals, f.Approximate)
	}
	// A human click without a visitor makes the figure of that row approximate.
	l.ship(time.Time{}, []shippedClick{{orgKey: "acme", link: links[0], at: from.AddDate(0, 0, 1), outcome: click.Redirect}})
	w.rollUp()
	if f, err = w.reader().Figures(t.Context(), o, q); err != nil || !f.Approximate {
		t.Errorf("approximate %v, %v; expected true", f.Approximate, err)
	}
}

func TestNoClickIsKeptWithoutRetention(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.retention = 0
	o, links := w.organization("acme", 1)
	l := w.log("a", daysAgo(1))
	l.ship(time.Time{}, []shippedClick{{orgKey: "acme", link: links[0], at: daysAgo(0), outcome: click.Redirect}})
	w.rollUp()
	page, err := w.reader().Clicks(t.Context(), o, PageRequest{From: daysAgo(1), To: daysAgo(-1), Limit: 10, Descending: true, Classes: PublicClasses})
	if err != nil || len(page.Clicks) != 0 || page.KeptSince == nil || !page.KeptSince.After(page.Now) {
		t.Errorf("%d clicks, kept since %v, %v; expected none, kept from tomorrow on", len(page.Clicks), page.KeptSince, err)
	}
}

func TestClickWithAnAgentBeyondTheDictionaryNamesOther(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o, links := w.organization("acme", 1)
	l := w.log("a", daysAgo(1))
	l.ship(time.Time{}, []shippedClick{{orgKey: "acme", link: links[0], at: daysAgo(1), outcome: click.Redirect}, {orgKey: "acme", link: links[0], at: daysAgo(1).Add(time.Second), outcome: click.Redirect}})
	w.exec(w.owner, `update clicks set agent_id = nullif(ordinal, 1)`)
	w.rollUp()
	page, err := w.reader().Clicks(t.Context(), o, PageRequest{From: daysAgo(2), To: daysAgo(0), Limit: 10, Classes: PublicClasses})
	if err != nil || len(page.Clicks) != 2 || page.Clicks[0].Agent == nil || *page.Clicks[0].Agent != "(other)" || page.Clicks[1].Agent != nil {
		t.Errorf("%+v, %v; expected the agents (other) and null", page.Clicks, err)
	}
}
