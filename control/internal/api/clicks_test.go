package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"deeplink/shared/catalog"
)

// figures is a response of GET /analytics/clicks.
type figures struct {
	From, To, AsOf string
	Interval       string
	GroupBy        *string
	Complete       bool
	Missing        []struct {
		Slot         string
		Since, Until *string
		State        string
	}
	CountedSince, ReclassifiedAt *string
	Totals                       struct {
		Clicks      int64
		VisitorDays *int64
		ByClass     map[string]int64
	}
	Data []struct {
		Start, End  string
		Key         *string
		Clicks      int64
		VisitorDays *int64
		Link        *struct{ ShortCode, URL string }
		Host        *string
	}
	NextCursor *string
}

// count writes n human clicks of a link as a roll-up would, at a time.
func (w *testEnv) count(orgKey, link string, at time.Time, n int) {
	w.T.Helper()
	w.Exec(`insert into click_quarters (org_key, link_id, quarter, class, outcome, clicks) values ($1, $2, $3, 'human', 'redirect', $4)`, orgKey, link, at, n)
	w.Exec(`insert into click_days (org_key, link_id, day, class, outcome, clicks) values ($1, $2, $3, 'human', 'redirect', $4)`, orgKey, link, at, n)
	w.Exec(`insert into click_org_quarters as t (org_key, quarter, class, outcome, clicks) values ($1, $2, 'human', 'redirect', $3)
		on conflict (org_key, quarter, class, outcome) do update set clicks = t.clicks + excluded.clicks`, orgKey, at, n)
	w.Exec(`insert into click_org_days as t (org_key, day, class, outcome, clicks) values ($1, $2, 'human', 'redirect', $3)
		on conflict (org_key, day, class, outcome) do update set clicks = t.clicks + excluded.clicks`, orgKey, at, n)
	w.Exec(`insert into click_links (org_key, link_id, human, last_human_at) values ($1, $2, $3, $4)`, orgKey, link, n, at)
}

func get[T any](t *testing.T, c *client, path string) T {
	t.Helper()
	r := c.Do("GET", path, "")
	if r.Status != http.StatusOK {
		t.Fatalf("GET %s: %s, expected 200", path, r)
	}
	var v T
	if err := json.Unmarshal(r.Body, &v); err != nil {
		t.Fatalf("GET %s: %v in %s", path, err, r)
	}
	return v
}

func TestInvalidParametersOfClicksAre400WithTheirField(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Scale).ServerKey)
	const (
		figuresPath = "/analytics/clicks?"
		raw         = "/analytics/clicks/raw?"
		old         = "from=2021-01-01&to=2021-02-01"
	)
	for _, test := range []struct{ query, field string }{
		{"from=yesterday", "from"}, {"from=", "from"}, {"from=2030-02-30", "from"}, {"from=2030-01-01T00:00:00", "from"}, {"from=2030-01-01T00:07:00Z", "from"},
		{"from=2030-01-01T00:00:00.001Z", "from"}, {"from=1999-12-31", "from"}, {"from=2100-01-01", "from"}, {"from=2030-01-01&from=2030-01-02", "from"},
		{"to=tomorrow", "to"}, {"to=2100-01-01", "to"}, {"from=2030-01-02&to=2030-01-01", "to"}, {"from=2030-01-01&to=2030-01-01", "to"}, {"from=2030-01-01&to=2041-01-01", "to"},
		{"timezone=", "timezone"}, {"timezone=Local", "timezone"}, {"timezone=%2B01:00", "timezone"}, {"timezone=UTC%2B1", "timezone"}, {"timezone=Europe/Atlantis", "timezone"},
		{"timezone=../../etc/passwd", "timezone"}, {"timezone=localtime", "timezone"}, {"timezone=Europe//Berlin", "timezone"}, {"timezone=Europe/./Berlin", "timezone"}, {"timezone=UTC&timezone=UTC", "timezone"},
		{"interval=day&interval=day", "interval"}, {"groupBy=link&groupBy=link", "groupBy"}, {"limit=1&limit=1", "limit"}, {"linkId=" + nowhere + "&linkId=" + nowhere, "linkId"}, {"tag=a&tag=a", "tag"},
		{"channel=email&channel=email", "channel"}, {"domainId=" + nowhere + "&domainId=" + nowhere, "domainId"}, {"after=a&after=a", "after"}, {"to=2030-01-01&to=2030-01-01", "to"},
		{"limit=", "limit"}, {"channel=", "channel"}, {"domainId=", "domainId"}, {"limit=%2B5", "limit"}, {"limit=010000000000000000000", "limit"}, {"from=2030-01-01T00:00:00%2B24:00", "from"},
		{"from=2030-01-01T00:00:00.000000001Z", "from"}, {"from=20300101", "from"}, {"from=2030-1-1", "from"}, {"from=%202030-01-01", "from"}, {"class=human%20", "class"}, {"class=all&class=all", "class"},
		{"timezone=europe/berlin", "timezone"}, {"timezone=posix/UTC", "timezone"}, {"timezone=Z", "timezone"}, {"timezone=-05:00", "timezone"}, {"timezone=%20UTC", "timezone"},
		{"from=2016-01-01&to=2026-01-10", "to"}, {"to=2021-02-01T00:15:00Z", "from"}, {"timezone=right/UTC", "timezone"}, {"timezone=a%00b", "timezone"},
		{"interval=minute", "interval"}, {"interval=", "interval"}, {"interval=DAY", "interval"}, {"groupBy=path", "groupBy"}, {"groupBy=", "groupBy"}, {"groupBy=link&interval=day", "groupBy"},
		{"class=", "class"}, {"class=internal", "class"}, {"class=human,", "class"}, {"class=human&class=robot", "class"}, {"class=all,human", "class"}, {"class=Human", "class"},
		{"outcome=", "outcome"}, {"outcome=200", "outcome"}, {"outcome=all,redirect", "outcome"}, {"groupBy=country&outcome=redirect", "outcome"},
		{"linkId=1", "linkId"}, {"linkId=", "linkId"}, {"linkId=%7B00000000-0000-0000-0000-000000000000%7D", "linkId"}, {"domainId=x", "domainId"}, {"channel=fax", "channel"}, {"tag=%00", "tag"},
		{"tag=" + repeat("a", 65), "tag"}, {"limit=0", "limit"}, {"limit=1001", "limit"}, {"limit=-1", "limit"}, {"limit=1e2", "limit"},
		{"after=", "after"}, {"after=x", "after"}, {"after=a+b", "after"}, {"after=" + repeat("A", 201), "after"}, {"after=" + repeat("A", 100), "after"},
		{"groupBy=country&from=2026-01-01T01:00:00Z&to=2026-01-02", "from"}, {"groupBy=country&from=2026-01-01&to=2026-01-02T01:00:00Z", "to"},
		{old + "&interval=hour", "from"}, {old + "&timezone=Europe/Berlin", "from"}, {"from=2021-01-01T01:00:00Z&to=2021-02-01", "from"}, {"from=2021-01-01&to=2021-02-01T00:15:00Z", "from"},
	} {
		r := c.Do("GET", figuresPath+test.query, "")
		if r.Status != http.StatusBadRequest || r.Fields() != test.field {
			t.Errorf("%s%s: %s, expected 400 with details of %s", figuresPath, test.query, r, test.field)
		}
	}
	for _, test := range []struct{ query, field string }{
		{"from=2030-01-01T00:00:00.0001Z", "from"}, {"order=", "order"}, {"order=up", "order"}, {"late=1", "late"}, {"late=", "late"}, {"limit=1001", "limit"}, {"class=internal", "class"}, {"after=AAAA", "after"},
	} {
		r := c.Do("GET", raw+test.query, "")
		if r.Status != http.StatusBadRequest || r.Fields() != test.field {
			t.Errorf("%s%s: %s, expected 400 with details of %s", raw, test.query, r, test.field)
		}
	}
	for _, path := range []string{
		figuresPath + old, figuresPath + old + "&interval=month", figuresPath + "class=human&class=bot,bot", figuresPath + "class=all&outcome=all", figuresPath + "timezone=Asia/Kathmandu&interval=hour&limit=1000",
		figuresPath + "unknown=1", figuresPath + "from=2030-01-01T00:15:00%2B05:30&to=2030-01-02", raw + "from=2020-01-01T00:00:00.001Z&to=2020-01-02&timezone=Asia/Kathmandu",
	} {
		if r := c.Do("GET", path, ""); r.Status != http.StatusOK {
			t.Errorf("%s: %s, expected 200", path, r)
		}
	}
	for _, path := range []string{"/links", "/links/" + nowhere} {
		for _, value := range []string{"", "click", "clicks,links"} {
			if r := c.Do("GET", path+"?include="+value, ""); r.Status != http.StatusBadRequest || r.Fields() != "include" {
				t.Errorf("GET %s?include=%s: %s, expected 400 with details of include", path, value, r)
			}
		}
	}
}

func TestPagesOfFiguresHaveEachRowOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Organization(catalog.Scale)
	c := w.serve().client(*o.ServerKey)
	at := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -10)
	long := repeat("ä", 250)
	var expected []string
	for i := range 23 {
		body := fmt.Sprintf(`{"path":"/a","utmCampaign":%q}`, fmt.Sprint(long, i%4))
		if i%5 == 0 {
			body = `{"path":"/a"}`
		}
		link := c.CreateLink(body)
		w.count(o.OrgKey, link.ID, at.Add(time.Duration(i)*15*time.Minute), 1+i%3)
		expected = append(expected, link.ID)
	}
	within := fmt.Sprintf("from=%s&to=%s", at.Format(time.DateOnly), at.AddDate(0, 0, 2).Format(time.DateOnly))
	for _, test := range []struct {
		query string
		rows  int
	}{{"groupBy=link", len(expected)}, {"interval=hour&timezone=UTC", 48}, {"interval=day", 2}, {"groupBy=utmCampaign", 5}} {
		whole := get[figures](t, c, "/analytics/clicks?"+within+"&"+test.query)
		if len(whole.Data) != test.rows {
			t.Fatalf("%s: %d rows, expected %d", test.query, len(whole.Data), test.rows)
		}
		for _, limit := range []int{1, 2, 7} {
			var rows []string
			cursor := ""
			for range 60 {
				page := get[figures](t, c, fmt.Sprintf("/analytics/clicks?%s&%s&limit=%d%s", within, test.query, limit, cursor))
				if page.Totals.Clicks != whole.Totals.Clicks {
					t.Errorf("%s: totals of a page are %d, expected %d", test.query, page.Totals.Clicks, whole.Totals.Clicks)
				}
				for _, row := range page.Data {
					rows = append(rows, asJSON(row))
				}
				if page.NextCursor == nil {
					break
				}
				if len(*page.NextCursor) > maxClickCursor {
					t.Errorf("a cursor has %d characters", len(*page.NextCursor))
				}
				cursor = "&after=" + *page.NextCursor
			}
			var all []string
			for _, row := range whole.Data {
				all = append(all, asJSON(row))
			}
			if strings.Join(rows, "\n") != strings.Join(all, "\n") {
				t.Errorf("%s in pages of %d:\n%s\nexpected\n%s", test.query, limit, strings.Join(rows, "\n"), strings.Join(all, "\n"))
			}
		}
	}
	// A cursor belongs to its organization and to its parameters, except limit.
	page := get[figures](t, c, "/analytics/clicks?"+within+"&groupBy=link&limit=1")
	next := "/analytics/clicks?" + within + "&groupBy=link&limit=3&after=" + *page.NextCursor
	get[figures](t, c, next)
	other := w.serve().client(*w.Organization(catalog.Scale).ServerKey)
	for _, test := range []struct {
		c    *client
		path string
	}{
		{other, next}, {c, next + "&class=all"}, {c, strings.Replace(next, "groupBy=link", "groupBy=domain", 1)}, {c, strings.Replace(next, "groupBy=link", "interval=day", 1)},
		{c, strings.Replace(next, "?", "/raw?", 1)}, {c, next[:len(next)-1]}, {c, next + "A"}, {c, strings.Replace(next, "from=", "from=2020-01-01&x=", 1)},
	} {
		if r := test.c.Do("GET", test.path, ""); r.Status != http.StatusBadRequest || r.Fields() != "after" {
			t.Errorf("GET %s: %s, expected 400 with details of after", test.path, r)
		}
	}
}

func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func TestGroupsNameLinksAndDomains(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Organization(catalog.Scale)
	c := w.serve().client(*o.ServerKey)
	kept, deleted := c.CreateLink(`{"path":"/a","shortCode":"kept","channel":"email","tags":["x","y"]}`), c.CreateLink(`{"path":"/a","channel":"sms"}`)
	at := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -2)
	w.count(o.OrgKey, kept.ID, at, 2)
	w.count(o.OrgKey, deleted.ID, at, 5)
	c.Do("DELETE", "/links/"+deleted.ID, "")
	byLink := get[figures](t, c, "/analytics/clicks?groupBy=link")
	if len(byLink.Data) != 2 || *byLink.Data[0].Key != deleted.ID || byLink.Data[0].Link != nil || byLink.Data[1].Link == nil || byLink.Data[1].Link.URL != kept.URL {
		t.Errorf("by link: %s", asJSON(byLink.Data))
	}
	byDomain := get[figures](t, c, "/analytics/clicks?groupBy=domain")
	if len(byDomain.Data) != 2 || byDomain.Data[0].Key != nil || byDomain.Data[1].Host == nil || !strings.HasSuffix(testLinkBase, *byDomain.Data[1].Host) {
		t.Errorf("by domain: %s", asJSON(byDomain.Data))
	}
	for query, expected := range map[string]string{
		"groupBy=channel": `null 5, "email" 2, `, "groupBy=tag": `null 5, "x" 2, "y" 2, `, "groupBy=class": `"human" 7, `, "groupBy=outcome": `"redirect" 7, `,
		"groupBy=channel&tag=x": `"email" 2, `, "groupBy=link&channel=sms": ``,
	} {
		got := ""
		for _, row := range get[figures](t, c, "/analytics/clicks?"+query).Data {
			got += asJSON(row.Key) + fmt.Sprintf(" %d, ", row.Clicks)
		}
		if got != expected {
			t.Errorf("%s: %s, expected %s", query, got, expected)
		}
	}
	list := get[struct {
		Data []struct {
			ID     string
			Clicks struct {
				Human       int64
				LastHumanAt *string
				AsOf        string
			}
		}
	}](t, c, "/links?include=clicks")
	if len(list.Data) != 1 || list.Data[0].Clicks.Human != 2 || list.Data[0].Clicks.LastHumanAt == nil || *list.Data[0].Clicks.LastHumanAt != at.Format(catalog.TimeFormat) {
		t.Errorf("links with clicks: %s", asJSON(list))
	}
	if r := c.Do("GET", "/links/"+kept.ID, ""); strings.Contains(string(r.Body), `"clicks"`) {
		t.Errorf("a link without include has clicks: %s", r)
	}
}
