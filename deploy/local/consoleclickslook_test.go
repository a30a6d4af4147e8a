package main

import (
	"fmt"
	"testing"

	"deeplink/shared/testkit/chrome"
)

// clickDays inserts clicks of class human and of all others for each link and each of the days before today, as roll-ups would. The numbers differ
// between days, weekdays and links, and are the same in every run.
const clickDays = `
	create temporary table made on commit drop as
	select o.org_key, l.id as link_id, row_number() over (order by l.created_at) as n, d.day::date as day, c.class::click_class, h.hour,
		greatest(0, floor(c.weight * (1 + sin(extract(doy from d.day) / 29) * 0.5 + extract(doy from d.day) / 500) * case extract(isodow from d.day) when 6 then 0.6 when 7 then 0.5 else 1 end
			* (0.5 + (hashtext(l.id::text || d.day || c.class || h.hour)::bigint & 1023) / 1023.0) / row_number() over (partition by d.day, c.class, h.hour order by l.created_at)))::bigint as clicks
	from organizations o join links l on l.organization_id = o.id
	cross join generate_series(now() at time zone 'UTC' - interval '%d days', now() at time zone 'UTC' - interval '1 day', interval '1 day') d(day)
	cross join (values ('human', 40), ('preview', 9), ('bot', 14), ('agent', 3), ('scanner', 4), ('prefetch', 2), ('head', 1)) c(class, weight)
	cross join (values (7), (9), (12), (18), (21)) h(hour)
	where o.org_key = '%s';
	delete from made where clicks = 0;
	insert into click_quarters (quarter, link_id, class, outcome, clicks, org_key)
		select (day + make_interval(hours => hour)) at time zone 'UTC', link_id, class, case when class in ('preview', 'bot') then 'preview' else 'redirect' end::click_outcome, clicks, org_key from made;
	insert into click_days (day, link_id, class, outcome, clicks, org_key)
		select day, link_id, class, case when class in ('preview', 'bot') then 'preview' when n = 2 then 'landing' else 'redirect' end::click_outcome, sum(clicks), org_key from made group by 1, 2, 3, 4, 6;
	insert into click_org_quarters (quarter, class, outcome, clicks, org_key)
		select quarter, class, outcome, sum(clicks), org_key from click_quarters where org_key = '%[2]s' group by 1, 2, 3, 5;
	insert into click_org_days (day, class, outcome, clicks, org_key)
		select day, class, outcome, sum(clicks), org_key from click_days where org_key = '%[2]s' group by 1, 2, 3, 5;
	insert into click_dimensions (day, link_id, class, clicks, dimension, value, org_key)
		select day, link_id, class, round(sum(clicks) * min(share)), dimension::click_dimension, value, org_key from made
		cross join (values ('country', 'DE', 0.4), ('country', 'US', 0.3), ('country', 'GB', 0.2), ('country', 'CI', 0.06), ('country', null, 0.04),
			('os', 'ios', 0.5), ('os', 'android', 0.3), ('os', 'macos', 0.2), ('browser', 'safari', 0.5), ('browser', 'chrome', 0.3), ('browser', 'instagram', 0.2),
			('device', 'mobile', 0.8), ('device', 'desktop', 0.2), ('language', 'de', 0.5), ('language', 'en', 0.5),
			('referrer', null, 0.5), ('referrer', 'l.instagram.com', 0.2), ('referrer', 'a-very-long-name-of-a-newspaper-that-nobody-can-remember.example.com', 0.2), ('referrer', 'news.example', 0.1)) v(dimension, value, share)
		group by 1, 2, 3, 5, 6, 7;
	insert into click_org_dimensions (day, class, clicks, dimension, value, org_key)
		select day, class, sum(clicks), dimension, value, org_key from click_dimensions where org_key = '%[2]s' group by 1, 2, 4, 5, 6;
	insert into click_visitor_days (day, visitors, link_id, org_key)
		select day, ceil(sum(clicks) * 0.8), link_id, org_key from made where class = 'human' group by 1, 3, 4
		union all select day, ceil(sum(clicks) * 0.7), '00000000-0000-0000-0000-000000000000', org_key from made where class = 'human' group by 1, 4;
	insert into click_links (org_key, link_id, human, last_human_at) select org_key, link_id, sum(clicks), max(day) from made where class = 'human' group by 1, 2;
	update click_logs set created_at = now() - interval '%[1]d days';`

// insertClicks inserts clicks on the links of an organization for the days before today.
func (h *testStack) insertClicks(t *testing.T, o tenant, days int) {
	t.Helper()
	h.exec(t, fmt.Sprintf(clickDays, days, o.key))
}

// clicksShown waits until the page of clicks shows everything.
func (p *tab) clicksShown() {
	p.t.Helper()
	p.Holds(`document.querySelector(".readout") !== null && ![...document.querySelectorAll(".page *")].some(e => e.childElementCount === 0 && e.textContent === "Loading…")`)
}

// testClickLooks shows the pages with no data, little data and a year of data, on narrow and wide screens, in light and dark mode.
func testClickLooks(t *testing.T, h *testStack, p *tab) {
	none := h.tenant(t, "Nothing Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, none, "owner")
	p.section("clicks")
	p.Says("No clicks yet")
	p.look("clicks-no-link")
	h.makeLink(t, h.token(t, none, "owner"), `{"path":"/sale","title":"Spring sale","shortCode":"sale","fallbackUrl":"https://shop.example.com/spring"}`)
	p.section("links")
	p.section("clicks")
	p.Says("curl -i")
	p.look("clicks-none")

	h.visit(t, none, "sale", safari)
	p.shown("human", 1)
	h.visit(t, none, "sale", safari)
	h.visit(t, none, "sale", map[string]string{"User-Agent": "facebookexternalhit/1.1"})
	p.shown("human", 2)
	p.shown("others", 1)
	p.Press("#all-classes")
	p.Says("names a preview bot")
	p.clicksShown()
	p.look("clicks-little")

}

// testClickYear shows a year of data in every form of the page.
func testClickYear(t *testing.T, h *testStack, p *tab) {
	year := h.fillShop(t)
	h.insertClicks(t, year, 400)
	h.visit(t, year, "spring", safari)
	h.visit(t, year, "spring", map[string]string{"User-Agent": "curl/8.5.0"})
	p.signIn(h, year, "owner")
	p.section("clicks")
	p.clicksShown()
	p.look("clicks-month")
	p.Press("#all-classes")
	p.set("#range", "365")
	p.Says("Clicks per week")
	p.clicksShown()
	p.look("clicks-year")
	p.set("#interval", "day")
	p.Says("Clicks per day")
	p.Press(".slider")
	p.Holds(`document.querySelector(".readout")?.innerText.includes("Human")`)
	p.clicksShown()
	p.look("clicks-year-by-day")
}

// sale creates an organization with one link, and clicks on it for the days before today.
func (h *testStack) sale(t *testing.T, name string, days int) tenant {
	t.Helper()
	o := h.tenant(t, name, "scale", "--app-config", "demo")
	h.makeLink(t, h.token(t, o, "owner"), `{"path":"/sale","title":"Spring sale","shortCode":"sale","channel":"email","fallbackUrl":"https://shop.example.com/spring"}`)
	h.insertClicks(t, o, days)
	return o
}

// testClickLinkLooks shows the page of a link, the table of its values, a range of two dates and the list of links.
func testClickLinkLooks(t *testing.T, h *testStack, p *tab) {
	o := h.sale(t, "Sale Ltd.", 90)
	h.visit(t, o, "sale", safari)
	p.signIn(h, o, "owner")
	p.Holds(`document.querySelector(".clicks-of")?.innerText !== "0"`)
	p.look("links-with-clicks")
	p.Press(".clicks-of")
	p.Says("Human clicks ever")
	p.clicksShown()
	p.look("clicks-link")
	p.Press("#all-classes")
	p.Press("#as-table")
	p.Holds(`document.querySelectorAll(".scroll tbody tr").length === 30`)
	p.clicksShown()
	p.look("clicks-as-table")
	p.Press("#as-table")
	p.Press(".help summary")
	p.set("#range", "custom")
	p.Write("#to", "")
	chrome.Evaluate[bool](p.Tab, `(document.querySelector("#to").value = "2020-01-01", true)`)
	p.Press(".custom button")
	p.Says("The last day must not be before the first.")
	p.look("clicks-custom")
}

// testEdgeMissing has logs in each state that makes figures incomplete. It is the last test: asOf stands still from then on.
func testEdgeMissing(t *testing.T, h *testStack, p *tab) {
	o := h.sale(t, "Missing Ltd.", 30)
	p.signIn(h, o, "owner")
	p.section("clicks")
	p.Says("Complete up to")
	p.SaysNot("These figures may lack clicks.")
	h.exec(t, `insert into click_logs (log, slot, state, durable, through, published_at, created_at) values
		(gen_random_uuid(), 'edge-2', 'open', true, now() - interval '3 days', now() - interval '1 hour', now() - interval '4 days')`)
	p.Says("These figures may lack clicks.", "The edge edge-2 has sent nothing since")
	h.exec(t, `insert into click_logs (log, slot, state, durable, through, published_at, ended_at, created_at) values
		(gen_random_uuid(), 'edge-3', 'forgotten', true, now() - interval '5 days', now() - interval '5 days', now() - interval '4 days', now() - interval '9 days'),
		(gen_random_uuid(), 'edge-4', 'lost', false, now() - interval '6 days', now() - interval '6 days', now() - interval '143 hours', now() - interval '9 days'),
		(gen_random_uuid(), 'edge-5', 'off', false, now() - interval '7 days', now() - interval '7 days', null, now() - interval '9 days')`)
	p.Says("gave up the edge edge-3", "edge-4 lost some clicks between", "edge-5 does not record clicks")
	h.exec(t, `update click_as_of set as_of = now() - interval '3 days'`)
	p.Holds(`document.querySelector(".complete.behind") !== null && document.querySelector(".unfinished") !== null`)
	p.clicksShown()
	p.look("clicks-edge-missing")
	h.exec(t, `delete from click_logs where slot like 'edge-%'`)
	p.Holds(`document.querySelector("#missing") === null`)
}
