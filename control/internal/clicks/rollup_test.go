package clicks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/click"
)

// rowsOf returns the rows of a query as sorted text.
func rowsOf(w *testEnv, sql string) []string {
	w.t.Helper()
	rows, err := w.owner.Query(w.t.Context(), sql)
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		for i, v := range values {
			if at, ok := v.(time.Time); ok {
				values[i] = at.UTC().Format(time.RFC3339Nano)
			}
			if id, ok := v.([16]byte); ok {
				values[i] = uuid.UUID(id).String()
			}
		}
		return strings.Trim(fmt.Sprint(values), "[]"), err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// expectation counts the shipped clicks one by one, with no code of the roll-up.
func (w *testEnv) expectation() map[string][]string {
	const null = "<nil>"
	text := func(s *string) string {
		if s == nil {
			return null
		}
		return *s
	}
	sums := map[string]map[string][3]int64{}
	add := func(table, key string, n, late, undetailed int64) {
		if sums[table] == nil {
			sums[table] = map[string][3]int64{}
		}
		s := sums[table][key]
		sums[table][key] = [3]int64{s[0] + n, s[1] + late, s[2] + undetailed}
	}
	type set = map[string]bool
	visitors, unhashed := map[string]set{}, map[string]int64{}
	human, last := map[string]int64{}, map[string]time.Time{}
	saw := func(orgKey, link string, at time.Time, visitor *int64, n int64, exact time.Time) {
		for _, of := range []string{link, uuid.Nil.String()} {
			if of == null {
				continue
			}
			key := orgKey + " " + of + " " + at.UTC().Format("2006-01-02T00:00:00Z")
			if visitors[key] == nil {
				visitors[key] = set{}
			}
			if visitor == nil {
				unhashed[key] += n
			} else {
				visitors[key][fmt.Sprint(*visitor)] = true
			}
		}
		if link != null {
			human[orgKey+" "+link] += n
			if exact.After(last[orgKey+" "+link]) {
				last[orgKey+" "+link] = exact
			}
		}
	}
	counts := func(orgKey, link string, at time.Time, class click.Class, outcome click.Outcome, n int64, late, undetailed bool) {
		var l, u int64
		if late {
			l = n
		}
		if undetailed {
			u = n
		}
		q, d := at.UTC().Truncate(15*time.Minute).Format(time.RFC3339Nano), at.UTC().Format("2006-01-02T00:00:00Z")
		add("quarters", fmt.Sprint(orgKey, " ", link, " ", q, " ", class, " ", outcome), n, l, u)
		add("days", fmt.Sprint(orgKey, " ", link, " ", d, " ", class, " ", outcome), n, l, u)
		add("org_quarters", fmt.Sprint(orgKey, " ", q, " ", class, " ", outcome), n, l, u)
		add("org_days", fmt.Sprint(orgKey, " ", d, " ", class, " ", outcome), n, l, u)
	}
	value := func(orgKey, link string, at time.Time, class click.Class, dimension, v string, n int64) {
		d := at.UTC().Format("2006-01-02T00:00:00Z")
		add("dimensions", fmt.Sprint(orgKey, " ", link, " ", d, " ", class, " ", dimension, " ", v), n, 0, 0)
		add("org_dimensions", fmt.Sprint(orgKey, " ", d, " ", class, " ", dimension, " ", v), n, 0, 0)
	}
	for _, c := range w.shipped {
		class, link := c.class(), c.link.String()
		counts(c.orgKey, link, c.at, class, c.outcome, 1, c.late, false)
		system := []string{"ios safari mobile", "windows chrome desktop", "other other other", "other other other", "linux chrome desktop", "other other other"}[c.agent]
		parts := strings.Fields(system)
		for dimension, v := range map[string]string{"country": text(c.country), "language": text(c.language), "referrer": text(c.referrer), "os": parts[0], "browser": parts[1], "device": parts[2]} {
			value(c.orgKey, link, c.at, class, dimension, v, 1)
		}
		if class == click.Human {
			saw(c.orgKey, link, c.at, c.visitor, 1, c.at)
		}
	}
	for _, c := range w.counted {
		link := null
		if c.link != nil {
			link = c.link.String()
		}
		counts(c.orgKey, link, c.quarter, c.class, c.outcome, c.clicks, c.late, c.outcome != click.Unknown)
		if c.outcome == click.Unknown {
			continue
		}
		for _, dimension := range dimensions {
			value(c.orgKey, link, c.quarter, c.class, dimension, "(unrecorded)", c.clicks)
		}
		if c.class == click.Human {
			saw(c.orgKey, link, c.quarter, nil, c.clicks, c.quarter)
		}
	}
	all := map[string][]string{}
	for table, rows := range sums {
		for key, n := range rows {
			if strings.HasSuffix(table, "dimensions") {
				all[table] = append(all[table], fmt.Sprint(key, " ", n[0]))
			} else {
				all[table] = append(all[table], fmt.Sprint(key, " ", n[0], " ", n[1], " ", n[2]))
			}
		}
	}
	for key, of := range visitors {
		all["visitors"] = append(all["visitors"], fmt.Sprint(key, " ", len(of), " ", unhashed[key]))
	}
	for key, n := range human {
		all["links"] = append(all["links"], fmt.Sprint(key, " ", n, " ", last[key].UTC().Format(time.RFC3339Nano)))
	}
	for table := range all {
		slices.Sort(all[table])
	}
	return all
}

// check compares every table of figures with the expectation.
func (w *testEnv) check() {
	w.t.Helper()
	expected := w.expectation()
	const counts = `class::text, outcome::text, clicks, late, undetailed`
	for table, sql := range map[string]string{
		"quarters":       `select org_key, link_id, quarter, ` + counts + ` from click_quarters where clicks <> 0`,
		"days":           `select org_key, link_id, day, ` + counts + ` from click_days where clicks <> 0`,
		"org_quarters":   `select org_key, quarter, ` + counts + ` from click_org_quarters where clicks <> 0`,
		"org_days":       `select org_key, day, ` + counts + ` from click_org_days where clicks <> 0`,
		"dimensions":     `select org_key, link_id, day, class::text, dimension::text, value, clicks from click_dimensions where clicks <> 0`,
		"org_dimensions": `select org_key, day, class::text, dimension::text, value, clicks from click_org_dimensions where clicks <> 0`,
		"visitors":       `select org_key, link_id, day, visitors, unhashed from click_visitor_days where visitors <> 0 or unhashed <> 0`,
		"links":          `select org_key, link_id, human, last_human_at from click_links where human <> 0`,
	} {
		if diff := cmp.Diff(append([]string{}, expected[table]...), append([]string{}, rowsOf(w, sql)...)); diff != "" {
			w.t.Errorf("%s (-expected +got):\n%.2000s", table, diff)
		}
	}
	if n := one[int64](w, `select count(*) from click_batches where rolled_at is null`); n != 0 {
		w.t.Errorf("%d batches were not rolled up", n)
	}
	if n := one[int64](w, `select count(*) from click_counts`); n != 0 {
		w.t.Errorf("%d counts were left", n)
	}
}

func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// recentDays returns the start of the day that many days ago.
func daysAgo(n int) time.Time { return dayOf(time.Now()).AddDate(0, 0, -n) }

func TestEveryTableEqualsACountOverTheClicks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	random := seeded(t)
	_, links := w.organization("acme", 4)
	_, others := w.organization("beta", 2)
	from := daysAgo(3)
	a, b := w.log("a", from), w.log("b", from)
	for i := range 6 {
		at := from.Add(time.Duration(i) * 11 * time.Hour)
		a.ship(at.Add(11*time.Hour), someClicks(random, "acme", links, at, at.Add(11*time.Hour), 150),
			countedClicks{"acme", nil, click.Unknown, click.Bot, at.Truncate(Quarter), 7, false},
			countedClicks{"acme", &links[0], click.Redirect, click.Human, at.Truncate(Quarter).Add(Quarter), 5, false},
			countedClicks{"acme", nil, click.Landing, click.Human, at.Truncate(Quarter), 3, false})
		b.ship(time.Time{}, someClicks(random, "beta", others, at, at.Add(time.Hour), 60))
		if i%2 == 0 {
			w.rollUp()
		}
	}
	// A late batch, and one that is sent again.
	a.ship(time.Time{}, someClicks(random, "acme", links, from, from.Add(time.Hour), 20))
	for i := range w.shipped[len(w.shipped)-20:] {
		w.shipped[len(w.shipped)-20+i].late = true
	}
	a.send(2, time.Time{}, someClicks(random, "acme", links, from, from.Add(time.Hour), 20), nil)
	w.rollUp()
	w.rollUp()
	w.check()
	if n := one[int64](w, `select count(*) from clicks where late`); n != 20 {
		t.Errorf("%d clicks are marked late, expected 20", n)
	}
	if n := one[int64](w, `select count(*) from clicks where (reason = 'list') <> (agent_id = (select id from click_agents where agent like '%Pingdom%') and evidence % 2 = 0) or reason = 'list' and class <> 'bot'`); n != 0 {
		t.Errorf("%d clicks of the public list are not bots", n)
	}
}

// Every click of a batch is written again if the batch is late, or too old to be kept.
func TestLargeBatchThatIsLateIsCounted(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, links := w.organization("acme", 3)
	l := w.log("a", daysAgo(1))
	l.ship(time.Time{}, someClicks(seeded(t), "acme", links, daysAgo(3), daysAgo(1), 20_000))
	w.rollUp()
	w.check()

	w.retention = 0
	l.ship(time.Time{}, someClicks(seeded(t), "acme", links, daysAgo(3), daysAgo(1), 20_000))
	w.rollUp()
	if kept := one[int](w, `select count(*) from clicks where sequence = 2`); kept != 0 {
		t.Errorf("%d clicks are kept, expected none", kept)
	}
}

func TestConcurrentRollUpsCountEachBatchOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	random := seeded(t)
	_, links := w.organization("acme", 3)
	from := daysAgo(1)
	l := w.log("a", from)
	for range 150 {
		l.ship(time.Time{}, someClicks(random, "acme", links, from, from.Add(20*time.Hour), 20))
	}
	errs := make(chan error, 4)
	for range 4 {
		go func() { errs <- w.rollUps().Round(t.Context()) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	w.rollUp()
	w.check()
}

func TestCanaryIsInNoFigure(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, links := w.organization("acme", 1)
	w.exec(w.owner, `update organizations set external_id = 'deeplink-canary'`)
	from := daysAgo(1)
	l := w.log("a", from)
	l.ship(time.Time{}, []shippedClick{{orgKey: "acme", link: links[0], at: from, outcome: click.Redirect}}, countedClicks{"acme", nil, click.Unknown, click.Human, from, 2, false})
	w.shipped, w.counted = nil, nil
	w.rollUp()
	w.check()
	if got := one[string](w, `select class::text || ' ' || reason from clicks`); got != "internal canary" {
		t.Errorf("the click is %s, expected internal canary", got)
	}
}

func TestValuesBeyondTheLimitOfADayCountAsOther(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, links := w.organization("acme", 1)
	from := daysAgo(1)
	l := w.log("a", from)
	ship := func(names ...string) {
		var clicks []shippedClick
		for _, name := range names {
			clicks = append(clicks, shippedClick{orgKey: "acme", link: links[0], at: from, outcome: click.Redirect, referrer: ptr(name)})
		}
		l.ship(time.Time{}, clicks)
		w.rollUp()
	}
	ship("first.example", "first.example")
	w.exec(w.owner, `insert into click_org_dimensions (org_key, dimension, day, class, value, clicks)
		select 'acme', 'referrer', $1::date, 'human', n || '.example', 1 from generate_series(1, 9998) n`, from)
	ship("a.example", "b.example", "c.example", "a.example", "first.example")
	ship("d.example", "a.example")
	expected := []string{"(other) 3", "a.example 3", "first.example 3"}
	if diff := cmp.Diff(expected, rowsOf(w, `select value, clicks from click_dimensions where dimension = 'referrer'`)); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}

func TestLateClicksOfDaysWithoutVisitorSetsAreCountedWithoutVisitor(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.retention = 0
	_, links := w.organization("acme", 1)
	l := w.log("a", daysAgo(9))
	old, recent := daysAgo(5), daysAgo(1)
	l.ship(time.Time{}, []shippedClick{
		{orgKey: "acme", link: links[0], at: old, outcome: click.Redirect, visitor: ptr(int64(1))},
		{orgKey: "acme", link: links[0], at: recent, outcome: click.Redirect, visitor: ptr(int64(1))},
	})
	w.rollUp()
	expected := []string{fmt.Sprint(old.Format(time.RFC3339), " 0 1"), fmt.Sprint(recent.Format(time.RFC3339), " 1 0")}
	if diff := cmp.Diff(expected, rowsOf(w, `select day, visitors, unhashed from click_visitor_days where link_id <> '00000000-0000-0000-0000-000000000000'`)); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
	if n := one[int64](w, `select count(*) from clicks`); n != 0 {
		t.Errorf("%d clicks were kept without retention", n)
	}
}
