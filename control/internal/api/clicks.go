package api

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"deeplink/control/internal/clicks"
	"deeplink/control/internal/decode"
	"deeplink/shared/catalog"
	"deeplink/shared/click"
)

// The bounds of the queries of clicks.
const (
	maxClickLimit      = 1000
	defaultSeriesLimit = 1000
	defaultGroupLimit  = 100
	maxClickDays       = 3660
	defaultClickDays   = 30
	firstClickYear     = 2000
	lastClickYear      = 2099
	maxClickCursor     = 200
)

// figuresResponse is the response of GET /analytics/clicks.
type figuresResponse struct {
	From           catalog.Time      `json:"from"`
	To             catalog.Time      `json:"to"`
	Timezone       string            `json:"timezone"`
	Interval       clicks.Interval   `json:"interval"`
	GroupBy        *clicks.GroupBy   `json:"groupBy"`
	AsOf           catalog.Time      `json:"asOf"`
	Complete       bool              `json:"complete"`
	Missing        []missingResponse `json:"missing"`
	CountedSince   *catalog.Time     `json:"countedSince"`
	ReclassifiedAt *catalog.Time     `json:"reclassifiedAt"`
	Approximate    bool              `json:"approximate"`
	Totals         clicks.Totals     `json:"totals"`
	Data           []any             `json:"data"`
	NextCursor     *string           `json:"nextCursor"`
}

// missingResponse is a log from which clicks may be absent.
type missingResponse struct {
	Slot  string        `json:"slot"`
	Since *catalog.Time `json:"since"`
	Until *catalog.Time `json:"until"`
	State clicks.State  `json:"state"`
}

// seriesRow is a row of a time series.
type seriesRow struct {
	Start       catalog.Time         `json:"start"`
	End         catalog.Time         `json:"end"`
	Clicks      int64                `json:"clicks"`
	ByClass     clicks.ByClassCounts `json:"byClass"`
	VisitorDays *int64               `json:"visitorDays"`
}

// groupRow is a group.
type groupRow struct {
	Key         *string              `json:"key"`
	Clicks      int64                `json:"clicks"`
	ByClass     clicks.ByClassCounts `json:"byClass"`
	VisitorDays *int64               `json:"visitorDays"`
}

// linkRow is the group of a link. Link is null if the link was deleted.
type linkRow struct {
	groupRow
	Link *clicks.RowLink `json:"link"`
}

// domainRow is the group of a domain. Host is null if there is none.
type domainRow struct {
	groupRow
	Host *string `json:"host"`
}

// rawResponse is the response of GET /analytics/clicks/raw.
type rawResponse struct {
	From       catalog.Time      `json:"from"`
	To         catalog.Time      `json:"to"`
	AsOf       catalog.Time      `json:"asOf"`
	Complete   bool              `json:"complete"`
	Missing    []missingResponse `json:"missing"`
	KeptSince  *catalog.Time     `json:"keptSince"`
	Data       []clicks.RawClick `json:"data"`
	NextCursor *string           `json:"nextCursor"`
}

// showClicks serves GET /analytics/clicks.
func (s *Server) showClicks(x *requestState, r *http.Request, organization catalog.Organization) error {
	q, c, err := readFigureQuery(r.URL.RawQuery, organization.ID, time.Now())
	if err != nil {
		return err
	}
	if c.key, err = s.Store.CursorKey(r.Context()); err != nil {
		return err
	}
	q.Start = q.From
	if c.sent != "" {
		at, ok := c.decodeFigures(q)
		if !ok {
			return errClickCursor
		}
		q.From, q.To, q.Start, q.After = at.From, at.To, at.Start, at.After
	}
	figures, err := s.Clicks.Figures(r.Context(), clicks.Organization{ID: organization.ID, Key: organization.OrgKey}, q)
	if err != nil {
		return err
	}
	response := figuresResponse{
		From: catalog.Time{Time: q.From}, To: catalog.Time{Time: q.To}, Timezone: q.Location.String(), Interval: q.Interval, AsOf: catalog.Time{Time: figures.AsOf},
		Complete: !figures.AsOf.Before(q.To), Missing: missingOf(figures.Missing), CountedSince: timeOrNull(figures.CountedSince),
		ReclassifiedAt: timeOrNull(figures.ReclassifiedAt), Approximate: figures.Approximate, Totals: figures.Totals, Data: make([]any, len(figures.Rows)),
	}
	if q.GroupBy != clicks.NoGroups {
		response.GroupBy = &q.GroupBy
	}
	for i, row := range figures.Rows {
		group := groupRow{row.Key, row.Clicks, row.ByClass, row.VisitorDays}
		switch {
		case q.Interval != clicks.NoInterval:
			response.Data[i] = seriesRow{catalog.Time{Time: row.Start}, catalog.Time{Time: row.End}, row.Clicks, row.ByClass, row.VisitorDays}
		case q.GroupBy == clicks.ByLink:
			response.Data[i] = linkRow{group, row.Link}
		case q.GroupBy == clicks.ByDomain:
			if row.Host != nil && *row.Host == "" {
				row.Host = s.sharedHost()
			}
			response.Data[i] = domainRow{group, row.Host}
		default:
			response.Data[i] = group
		}
	}
	switch {
	case figures.NextStart != nil:
		next := c.encodeFigures(q, figurePlace{From: q.From, To: q.To, Start: *figures.NextStart})
		response.NextCursor = &next
	case figures.NextPlace != nil:
		next := c.encodeFigures(q, figurePlace{From: q.From, To: q.To, Start: q.From, After: figures.NextPlace})
		response.NextCursor = &next
	}
	return writeJSON(x, http.StatusOK, response)
}

// sharedHost returns the host of LINK_BASE_URL.
func (s *Server) sharedHost() *string {
	_, host, _ := strings.Cut(string(s.LinkBase), "://")
	host, _, _ = strings.Cut(host, "/")
	return &host
}

// showRawClicks serves GET /analytics/clicks/raw.
func (s *Server) showRawClicks(x *requestState, r *http.Request, organization catalog.Organization) error {
	p, c, err := readRawQuery(r.URL.RawQuery, organization.ID, time.Now())
	if err != nil {
		return err
	}
	if c.key, err = s.Store.CursorKey(r.Context()); err != nil {
		return err
	}
	if c.sent != "" {
		at, ok := c.decodeRaw()
		if !ok {
			return errClickCursor
		}
		p.From, p.After = at.From, &at.After
		if p.Descending || c.given.to != "" {
			// A client that follows clicks in ascending order does so for days: without a parameter, the end moves on.
			p.To = at.To
		}
	}
	from, to := p.From, p.To
	page, err := s.Clicks.Clicks(r.Context(), clicks.Organization{ID: organization.ID, Key: organization.OrgKey}, p)
	if err != nil {
		return err
	}
	response := rawResponse{
		From: catalog.Time{Time: from}, To: catalog.Time{Time: to}, AsOf: catalog.Time{Time: page.AsOf}, Complete: !page.AsOf.Before(to),
		Missing: missingOf(page.Missing), KeptSince: timeOrNull(page.KeptSince), Data: page.Clicks,
	}
	if page.Next != nil {
		next := c.encodeRaw(rawPlace{From: from, To: to, After: *page.Next})
		response.NextCursor = &next
	}
	return writeJSON(x, http.StatusOK, response)
}

func missingOf(all []clicks.Missing) []missingResponse {
	list := make([]missingResponse, len(all))
	for i, m := range all {
		list[i] = missingResponse{m.Slot, timeOrNull(m.Since), timeOrNull(m.Until), m.State}
	}
	return list
}

func timeOrNull(at *time.Time) *catalog.Time {
	if at == nil {
		return nil
	}
	return &catalog.Time{Time: *at}
}

// clickRange are the parameters that both queries of clicks have.
type clickRange struct {
	From, To time.Time
	Location *time.Location
	Classes  []click.Class
	Outcomes []click.Outcome // nil: absent
	Links    clicks.LinkFilter
}

// readFigureQuery reads the query of GET /analytics/clicks. The error is a catalog.Invalid.
func readFigureQuery(raw, organizationID string, now time.Time) (clicks.FigureQuery, clickCursor, error) {
	q := decode.ReadQuery(raw)
	common := readClickRange(q, now, clicks.Quarter, "must be a date such as 2030-01-31, or an RFC 3339 time on a quarter of an hour")
	f := clicks.FigureQuery{From: common.From, To: common.To, Location: common.Location, Classes: common.Classes, Outcomes: common.Outcomes, Links: common.Links}
	f.Interval = decode.Parse(q, "interval", clicks.NoInterval, oneOf(clicks.Intervals), "must be none, hour, day, week or month")
	f.GroupBy = decode.Parse(q, "groupBy", clicks.NoGroups, oneOf(clicks.GroupBys), "must be one of "+join(clicks.GroupBys))
	limit := defaultSeriesLimit
	if f.GroupBy != clicks.NoGroups {
		limit = defaultGroupLimit
	}
	f.Limit = q.Integer("limit", limit, 1, maxClickLimit)
	if f.Interval != clicks.NoInterval && f.GroupBy != clicks.NoGroups {
		q.Add("groupBy", "cannot be combined with an interval")
	}
	midnights := f.From.Equal(f.From.Truncate(24*time.Hour)) && f.To.Equal(f.To.Truncate(24*time.Hour))
	// The bounds of the range are reported first; this depends on them.
	if q.Err() == nil && f.From.Before(now.Add(-clicks.QuartersKept)) && (!midnights || f.Location.String() != "UTC" || f.Interval == clicks.Hourly) {
		q.Add("from", "is more than 400 days ago: such times need from and to at midnight (UTC), the time zone UTC, and an interval other than hour")
	}
	if f.GroupBy.PerDay() {
		if f.Outcomes != nil {
			q.Add("outcome", "cannot be combined with this groupBy")
		}
		if q.Err() == nil && !midnights {
			field := "from"
			if f.From.Equal(f.From.Truncate(24 * time.Hour)) {
				field = "to"
			}
			q.Add(field, "must be a midnight (UTC) with this groupBy")
		}
	}
	c := newClickCursor(q, "figures", organizationID, common, string(f.Interval), string(f.GroupBy))
	return f, c, q.Err()
}

// readRawQuery reads the query of GET /analytics/clicks/raw. The error is a catalog.Invalid.
func readRawQuery(raw, organizationID string, now time.Time) (clicks.PageRequest, clickCursor, error) {
	q := decode.ReadQuery(raw)
	common := readClickRange(q, now, time.Millisecond, "must be a date such as 2030-01-31, or an RFC 3339 time with at most milliseconds")
	p := clicks.PageRequest{
		From: common.From, To: common.To, Classes: common.Classes, Outcomes: common.Outcomes, Links: common.Links,
		Limit:      q.Integer("limit", defaultGroupLimit, 1, maxClickLimit),
		Descending: decode.Parse(q, "order", true, parseOrder, "must be asc or desc"),
		Late:       q.Boolean("late"),
	}
	late := ""
	if p.Late != nil {
		late = fmt.Sprint(*p.Late)
	}
	c := newClickCursor(q, "raw", organizationID, common, fmt.Sprint(p.Descending), late)
	return p, c, q.Err()
}

func parseOrder(s string) (descending, ok bool) { return s == "desc", s == "desc" || s == "asc" }

// readClickRange reads the parameters that both queries have. from and to must be multiples of the resolution.
func readClickRange(q *decode.Query, now time.Time, resolution time.Duration, otherwise string) (c clickRange) {
	c.Location = decode.Parse(q, "timezone", time.UTC, clicks.Location, "must be the name of an IANA time zone, such as Europe/Berlin")
	c.readTimes(q, now, resolution, otherwise)
	c.Classes = readNames(q, "class", []click.Class{click.Human}, clicks.PublicClasses, "must be all, or one or more of human, preview, bot, prefetch, head, scanner and agent")
	c.Outcomes = readNames(q, "outcome", nil, outcomes, "must be all, or one or more of "+strings.Join(click.Outcomes(), ", "))
	c.Links = clicks.LinkFilter{
		LinkID:   decode.Parse(q, "linkId", "", catalog.ValidUUID, "must be a UUID"),
		Tag:      q.Text("tag", catalog.MaxTag),
		Channel:  decode.Parse(q, "channel", "", parseChannel, "must be a known channel"),
		DomainID: decode.Parse(q, "domainId", "", catalog.ValidUUID, "must be a UUID"),
	}
	return c
}

func (c *clickRange) readTimes(q *decode.Query, now time.Time, resolution time.Duration, otherwise string) {
	parse := func(text string) (time.Time, bool) {
		if date, err := time.Parse(time.DateOnly, text); err == nil {
			if date.Year() < firstClickYear || date.Year() > lastClickYear {
				return date, false
			}
			at := clicks.StartOf(date, c.Location)
			return at, at.Equal(at.Truncate(resolution))
		}
		at, ok := decode.ParseTime(text)
		year := at.In(c.Location).Year()
		return at.UTC(), ok && at.Equal(at.Truncate(resolution)) && year >= firstClickYear && year <= lastClickYear
	}
	otherwise += fmt.Sprintf(", in the years %d to %d", firstClickYear, lastClickYear)
	c.To = decode.Parse(q, "to", clicks.StartOf(clicks.DateOf(now, c.Location).AddDate(0, 0, 1), c.Location), parse, otherwise)
	c.From = decode.Parse(q, "from", clicks.StartOf(clicks.DateOf(c.To, c.Location).AddDate(0, 0, -defaultClickDays), c.Location), parse, otherwise)
	if q.Err() != nil {
		return // to compare them would report a second error of the same fault
	}
	switch {
	case !c.From.Before(c.To):
		q.Add("to", "must be after from")
	case c.To.Sub(c.From) > maxClickDays*24*time.Hour:
		q.Add("to", fmt.Sprintf("must be at most %d days after from", maxClickDays))
	}
}

// outcomes are all outcomes.
var outcomes = []click.Outcome{click.Redirect, click.Handoff, click.Landing, click.Preview, click.Inactive, click.Expired, click.Suspended, click.Unknown}

// readNames reads a parameter that is "all" or a list of names, each counted once.
func readNames[T interface {
	click.Class | click.Outcome
	String() string
}](q *decode.Query, name string, unset, all []T, otherwise string) (values []T) {
	texts, given := q.List(name)
	if !given {
		return unset
	}
	if len(texts) == 1 && texts[0] == "all" {
		return all
	}
	for _, text := range texts {
		i := slices.IndexFunc(all, func(v T) bool { return v.String() == text })
		if i < 0 {
			q.Add(name, otherwise)
			return unset
		}
		if !slices.Contains(values, all[i]) {
			values = append(values, all[i])
		}
	}
	return values
}

// oneOf returns a parser of the values.
func oneOf[T ~string](values []T) func(string) (T, bool) {
	return func(s string) (T, bool) { return T(s), slices.Contains(values, T(s)) }
}

func join[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

var clickCursorForm = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9_-]{1,%d}$`, maxClickCursor))

var errClickCursor = decode.FieldError("after", "must be the nextCursor of the previous page, with all other parameters unchanged")

// linkWithClicks is a link in a response with include=clicks.
type linkWithClicks struct {
	catalog.LinkWithDomain
	Clicks clicks.LinkClicks `json:"clicks"`
}

// linkPageWithClicks is a page of links in a response with include=clicks. Its Data hides the one of the page.
type linkPageWithClicks struct {
	Data []linkWithClicks `json:"data"`
	linkPage
}

// cursorPageWithClicks is linkPageWithClicks for a page that follows a cursor.
type cursorPageWithClicks struct {
	Data []linkWithClicks `json:"data"`
	cursorPage
}

// readInclude reads the parameter include of requests for links.
func readInclude(q *decode.Query) (withClicks bool) {
	return decode.Parse(q, "include", false, func(s string) (bool, bool) { return true, s == "clicks" }, "must be clicks")
}

// readIncludeOf reads the parameter include of a request for one link, which has no other parameters. With clicks it removes If-None-Match, whatever
// its value: an ETag identifies the state of the link and not its clicks.
func readIncludeOf(r *http.Request) (withClicks bool, err error) {
	if !r.URL.Query().Has("include") {
		return false, nil
	}
	q := decode.ReadQuery(r.URL.RawQuery)
	if withClicks = readInclude(q); withClicks {
		r.Header.Del("If-None-Match")
	}
	return withClicks, q.Err()
}

// includeClicks returns the links with their clicks.
func (s *Server) includeClicks(r *http.Request, organization catalog.Organization, links []catalog.LinkWithDomain) ([]linkWithClicks, error) {
	ids := make([]string, len(links))
	for i, link := range links {
		ids[i] = link.ID
	}
	counts, err := s.Clicks.LinkClicks(r.Context(), clicks.Organization{ID: organization.ID, Key: organization.OrgKey}, ids)
	if err != nil {
		return nil, err
	}
	all := make([]linkWithClicks, len(links))
	for i, link := range links {
		all[i] = linkWithClicks{link, counts[i]}
	}
	return all, nil
}
