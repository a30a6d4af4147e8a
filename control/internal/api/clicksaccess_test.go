package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// clickPaths are the routes of figures.
var clickPaths = []string{"/analytics/clicks", "/analytics/clicks/raw"}

func TestFiguresAreCheckedInTheOrderOfOtherRoutes(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	o, unplanned := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	featureless := w.Organization(catalog.Scale)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	w.Exec(`update organizations set plan = 'starter' where id = $1`, featureless.ID)
	suspended := w.Organization(catalog.Scale)
	w.Exec(`update organizations set suspended = true where id = $1`, suspended.ID)
	for _, path := range clickPaths {
		for _, test := range []struct {
			name, key, query string
			status           int
			code             string
		}{
			{"no key", "", "", 401, ""},
			{"suspended", *suspended.ServerKey, "?limit=0", 401, ""},
			{"client key", *o.ClientKey, "?limit=0", 403, ""},
			{"no plan, before validation", *unplanned.ServerKey, "?limit=0", 402, "PLAN_NOT_SELECTED"},
			{"no feature, before validation", *featureless.ServerKey, "?limit=0", 403, "FEATURE_NOT_AVAILABLE"},
			{"invalid", *o.ServerKey, "?limit=0", 400, ""},
			{"valid", *o.ServerKey, "", 200, ""},
		} {
			for _, method := range []string{"GET", "HEAD"} {
				r := p.client(test.key).Do(method, path+test.query, "")
				if r.Status != test.status || method == "GET" && r.Code() != test.code || method == "HEAD" && len(r.Body) > 0 {
					t.Errorf("%s %s, %s: %s, expected %d %s", method, path, test.name, r, test.status, test.code)
				}
			}
		}
		if r := p.client(*o.ServerKey).Do("POST", path, "{}"); r.Status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %s, expected 405", path, r)
		}
	}
}

func TestMembersReadFiguresInThePortal(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	provider := w.provider()
	p := provider.serve()
	free, unplanned := w.Tenant(catalog.Free), w.Tenant(catalog.Free)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	for _, path := range clickPaths {
		path = "/portal" + path
		if r := p.client("").Do("GET", path, ""); r.Status != http.StatusUnauthorized {
			t.Errorf("GET %s without a token: %s, expected 401", path, r)
		}
		if r := provider.as(p, free, "member").Do("GET", path+"?timezone=Asia/Kathmandu", ""); r.Status != http.StatusOK {
			t.Errorf("GET %s as a member of an organization without API access: %s, expected 200", path, r)
		}
		if r := provider.as(p, free, "guest").Do("GET", path, ""); r.Status != http.StatusForbidden {
			t.Errorf("GET %s with an unknown role: %s, expected 403", path, r)
		}
		if r := provider.as(p, unplanned, "owner").Do("GET", path+"?limit=0", ""); r.Code() != "PLAN_NOT_SELECTED" {
			t.Errorf("GET %s without a plan: %s, expected PLAN_NOT_SELECTED", path, r)
		}
		if r := provider.as(p, free, "owner").Do("HEAD", path, ""); r.Status != http.StatusOK || len(r.Body) > 0 {
			t.Errorf("HEAD %s: %s, expected 200", path, r)
		}
	}
}

func TestFiguresShareTheRateLimitOfReadsOfLinks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Scale).ServerKey)
	for _, path := range append([]string{"/links"}, clickPaths...) {
		await(t, "a 429 of "+path, func() error {
			w.useUpLimits(ratelimit.LinkReads)
			if r := c.Do("GET", path, ""); r.Status != http.StatusTooManyRequests {
				return fmt.Errorf("%s", r)
			}
			return nil
		})
	}
}

func TestIDsOfOthersGiveZeros(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	o, other := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	mine, theirs := p.client(*o.ServerKey), p.client(*other.ServerKey)
	link := theirs.CreateLink(`{"path":"/a"}`)
	at := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -2)
	w.count(other.OrgKey, link.ID, at, 3)
	if got := get[figures](t, theirs, "/analytics/clicks?linkId="+strings.ToUpper(link.ID)); got.Totals.Clicks != 3 {
		t.Errorf("%d clicks of the own link, expected 3", got.Totals.Clicks)
	}
	for _, query := range []string{"linkId=" + link.ID, "linkId=" + nowhere, "domainId=" + nowhere, "linkId=00000000-0000-0000-0000-000000000000"} {
		for _, more := range []string{"", "&interval=day", "&groupBy=link", "&groupBy=country", "&groupBy=channel", "&timezone=Asia/Kathmandu&interval=week"} {
			got := get[figures](t, mine, "/analytics/clicks?"+query+more)
			clicks := got.Totals.Clicks
			for _, row := range got.Data {
				clicks += row.Clicks
			}
			if clicks != 0 || strings.Contains(more, "groupBy") && len(got.Data) > 0 {
				t.Errorf("%s%s: %s, expected zeros", query, more, asJSON(got))
			}
		}
		if got := get[struct{ Data []any }](t, mine, "/analytics/clicks/raw?"+query); len(got.Data) != 0 {
			t.Errorf("raw clicks with %s: %v, expected none", query, got.Data)
		}
	}
}

// TestDefaultRangeHasThirtyDaysInEveryTimeZone has a date without midnight at both ends: in Chile, 2026-09-06 starts at 01:00.
func TestDefaultRangeHasThirtyDaysInEveryTimeZone(t *testing.T) {
	for _, test := range []struct{ now, query, from, to string }{
		{"2026-09-05T15:00:00Z", "timezone=America/Santiago", "2026-08-07T04:00:00Z", "2026-09-06T04:00:00Z"},
		{"2026-09-05T04:20:00Z", "timezone=America/Santiago", "2026-08-07T04:00:00Z", "2026-09-06T04:00:00Z"},
		{"2026-10-05T15:00:00Z", "timezone=America/Santiago", "2026-09-06T04:00:00Z", "2026-10-06T03:00:00Z"},
		{"2026-10-20T15:00:00Z", "timezone=America/Santiago&to=2026-10-06", "2026-09-06T04:00:00Z", "2026-10-06T03:00:00Z"},
		{"2026-10-20T15:00:00Z", "timezone=Asia/Kathmandu&to=2026-10-06T00:00:00Z", "2026-09-05T18:15:00Z", "2026-10-06T00:00:00Z"},
		{"2026-10-20T23:59:59Z", "", "2026-09-21T00:00:00Z", "2026-10-21T00:00:00Z"},
		{"2026-10-20T00:00:00Z", "", "2026-09-21T00:00:00Z", "2026-10-21T00:00:00Z"},
		{"2026-11-02T12:00:00Z", "timezone=Europe/Berlin", "2026-10-03T22:00:00Z", "2026-11-02T23:00:00Z"},
	} {
		now, _ := time.Parse(time.RFC3339, test.now)
		q, _, err := readFigureQuery(test.query, nowhere, now)
		if err != nil {
			t.Fatal(err)
		}
		if from, to := q.From.Format(time.RFC3339), q.To.Format(time.RFC3339); from != test.from || to != test.to {
			t.Errorf("%s at %s: from %s to %s, expected %s to %s", test.query, test.now, from, to, test.from, test.to)
		}
	}
}

func TestEveryAlteredCursorOfFiguresIs400(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Organization(catalog.Scale)
	c := w.serve().client(*o.ServerKey)
	at := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -2)
	for range 2 {
		w.count(o.OrgKey, c.CreateLink(`{"path":"/a"}`).ID, at, 1)
	}
	page := get[figures](t, c, "/analytics/clicks?groupBy=link&limit=1")
	next := get[figures](t, c, "/analytics/clicks?groupBy=link&limit=1&after="+*page.NextCursor)
	if len(next.Data) != 1 || next.NextCursor != nil {
		t.Fatalf("the second page: %s, expected the last row", asJSON(next))
	}
	for i := range *page.NextCursor {
		altered := []byte(*page.NextCursor)
		if altered[i] == 'A' {
			altered[i] = 'B'
		} else {
			altered[i] = 'A'
		}
		if r := c.Do("GET", "/analytics/clicks?groupBy=link&limit=1&after="+string(altered), ""); r.Status != http.StatusBadRequest || r.Fields() != "after" {
			t.Fatalf("the cursor with another character %d: %s, expected 400 on after", i, r)
		}
	}
}

func TestReadsOfLinksWithClicksIgnoreIfNoneMatch(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Tenant(catalog.Scale)
	provider := w.provider()
	p := provider.serve()
	c, visit := p.client(*o.ServerKey), provider.as(p, o, "member")
	link := c.CreateLink(`{"path":"/a","externalId":"a-1"}`)
	tag := c.Do("GET", "/links/"+link.ID, "").Header.Get("ETag")
	for _, path := range []string{"/links/" + link.ID, "/links/external/a-1"} {
		if r := c.Do("GET", path, "", "If-None-Match", tag); r.Status != http.StatusNotModified {
			t.Errorf("%s without clicks: %s, expected 304", path, r)
		}
		for _, value := range []string{tag, "*", "not a tag"} {
			for _, r := range []reply{c.Do("GET", path+"?include=clicks", "", "If-None-Match", value), visit.Do("GET", "/portal"+path+"?include=clicks", "", "If-None-Match", value)} {
				if r.Status != http.StatusOK || !strings.Contains(string(r.Body), `"clicks":{"human":0,"lastHumanAt":null,"asOf":"`) || r.Header.Get("ETag") != tag {
					t.Errorf("%s with clicks, If-None-Match %s: %s, expected 200 with the ETag %s", path, value, r, tag)
				}
			}
		}
	}
	for _, path := range []string{"/links?", "/links?after=&limit=1&"} {
		for _, r := range []reply{c.Do("GET", path+"include=clicks", ""), visit.Do("GET", "/portal"+path+"include=clicks", "")} {
			if r.Status != http.StatusOK || !strings.Contains(string(r.Body), `"clicks":{"human":0`) {
				t.Errorf("%sinclude=clicks: %s, expected links with clicks", path, r)
			}
		}
	}
}

// slow makes each query of figures take that long.
func (w *testEnv) slow(t time.Duration) {
	w.T.Helper()
	w.Exec(`alter table click_organizations rename to click_organizations_table`)
	w.Exec(fmt.Sprintf(`create view click_organizations as select o.* from click_organizations_table o union all select pg_sleep(%g)::text, now()`, t.Seconds()))
	w.Exec(`grant select on click_organizations to deeplink_control`)
}

func TestQueryOfFiguresThatTakesTooLongIs503(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Scale).ServerKey)
	w.slow(time.Minute)
	began := time.Now()
	r := c.Do("GET", "/analytics/clicks", "")
	if took := time.Since(began); r.Status != http.StatusServiceUnavailable || took < 4*time.Second || took > 10*time.Second {
		t.Errorf("%s after %v, expected 503 after 5 s", r, took)
	}
	await(t, "Postgres to end the query", func() error {
		var n int
		if err := w.Pool.QueryRow(context.Background(), `select count(*) from pg_stat_activity where state = 'active' and wait_event = 'PgSleep' and datname = current_database()`).Scan(&n); err != nil || n > 0 {
			return fmt.Errorf("%d queries run, %v", n, err)
		}
		return nil
	})
}

func TestFourQueriesOfFiguresOfAnOrganizationRunAtATime(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	o, other := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	w.slow(1500 * time.Millisecond)
	var waiting sync.WaitGroup
	for _, at := range []store.CreatedOrganization{o, other} {
		c := p.client(*at.ServerKey)
		for range 6 {
			waiting.Go(func() {
				if r := c.Do("GET", "/analytics/clicks", ""); r.Status != http.StatusOK {
					t.Errorf("%s, expected 200 after a wait", r)
				}
			})
		}
		if at.ID == o.ID {
			await(t, "four queries", func() error {
				if n := w.sleeping(); n != 4 {
					return fmt.Errorf("%d queries run", n)
				}
				return nil
			})
		}
	}
	most := 0
	for range 20 {
		most = max(most, w.sleeping())
		time.Sleep(10 * time.Millisecond)
	}
	if most <= 4 {
		t.Errorf("at most %d queries ran at the same time, expected those of the second organization in addition to the first four", most)
	}
	waiting.Wait()
}

// sleeping returns the number of queries that slow holds.
func (w *testEnv) sleeping() (n int) {
	_ = w.Pool.QueryRow(context.Background(), `select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()`).Scan(&n)
	return n
}
