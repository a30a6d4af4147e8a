package clicks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/bulkhead"
	"deeplink/control/internal/store"
	"deeplink/shared/click"
)

const (
	// queryTimeout bounds a query of figures, with its wait for a place.
	queryTimeout = 5 * time.Second
	// queriesPerOrganization is the number of queries of an organization that run at the same time, waitingQueries that of those that wait.
	queriesPerOrganization = 4
	waitingQueries         = 256
)

// Reader serves figures and clicks. It is safe for concurrent use.
type Reader struct {
	pool      *pgxpool.Pool
	raw       Raw
	agents    *dictionary
	retention time.Duration
	share     *bulkhead.Bulkhead
	linkBase  func(orgKey, host, shortCode string) string
}

// NewReader returns a reader over a pool of its own. retention is CLICKS_RETENTION. shortURL builds the URL of a link; host is empty on the
// shared host.
func NewReader(pool *pgxpool.Pool, retention time.Duration, shortURL func(orgKey, host, shortCode string) string) *Reader {
	return &Reader{
		pool: pool, raw: table{}, agents: newDictionary(), retention: retention, linkBase: shortURL,
		share: bulkhead.New(bulkhead.Limits{
			Slots: max(1, int(pool.Config().MaxConns)), PerKey: queriesPerOrganization, MaxWaiting: waitingQueries, MaxWait: queryTimeout,
		}),
	}
}

// Organization is the organization of a query.
type Organization struct{ ID, Key string }

// snapshot runs reads of an organization in one snapshot, within queryTimeout.
func (r *Reader) snapshot(ctx context.Context, o Organization, what string, reads func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	leave, err := r.share.Acquire(ctx, o.ID)
	switch {
	case errors.Is(err, bulkhead.ErrFull), errors.Is(err, bulkhead.ErrTimeout):
		return fmt.Errorf("%s: %w: %w", what, store.ErrBusy, err)
	case err != nil:
		return fmt.Errorf("%s: %w: %w", what, store.ErrUnavailable, err)
	}
	defer leave()
	return store.Retry(what, func() error {
		tx, err := r.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		return reads(ctx, tx)
	})
}

// GroupBy is what the rows of a response are grouped by. "" stands for no groups.
type GroupBy string

const (
	NoGroups      GroupBy = ""
	ByLink        GroupBy = "link"
	ByChannel     GroupBy = "channel"
	ByTag         GroupBy = "tag"
	ByDomain      GroupBy = "domain"
	ByClass       GroupBy = "class"
	ByOutcome     GroupBy = "outcome"
	ByCountry     GroupBy = click.DimensionCountry
	ByOS          GroupBy = click.DimensionOS
	ByBrowser     GroupBy = click.DimensionBrowser
	ByDevice      GroupBy = click.DimensionDevice
	ByLanguage    GroupBy = click.DimensionLanguage
	ByReferrer    GroupBy = click.DimensionReferrer
	ByUTMSource   GroupBy = "utmSource"
	ByUTMMedium   GroupBy = "utmMedium"
	ByUTMCampaign GroupBy = "utmCampaign"
)

// GroupBys are all groupings.
var GroupBys = []GroupBy{
	ByLink, ByChannel, ByTag, ByDomain, ByClass, ByOutcome, ByCountry, ByOS, ByBrowser, ByDevice, ByLanguage, ByReferrer, ByUTMSource,
	ByUTMMedium, ByUTMCampaign,
}

// PerDay reports whether figures of the grouping exist per day and without outcome only.
func (g GroupBy) PerDay() bool {
	switch g {
	case ByCountry, ByOS, ByBrowser, ByDevice, ByLanguage, ByReferrer:
		return true
	}
	return false
}

// FigureQuery selects figures.
type FigureQuery struct {
	// From is inclusive, To exclusive. Both are on quarters.
	From, To time.Time
	Location *time.Location
	Interval Interval
	GroupBy  GroupBy
	// Classes are the requested ones, at least one.
	Classes []click.Class
	// Outcomes is nil for all except click.Unknown.
	Outcomes []click.Outcome
	Links    LinkFilter
	Limit    int
	// Start is the start of the first row of a series, From for the first page.
	Start time.Time
	// After is the place in groups before the page, nil for the first page.
	After *GroupPlace
}

// GroupPlace is a place in groups: behind Skip of the groups with this number of clicks and a key of at least Key. Keys can be longer than a
// cursor, which has their first bytes.
type GroupPlace struct {
	Clicks int64
	Key    []byte // nil: behind the group without key
	Skip   int
}

// maxPlaceKey is the length of the longest GroupPlace.Key, in bytes.
const maxPlaceKey = 80

// ByClassCounts are numbers of clicks by class.
type ByClassCounts struct {
	Human    int64 `json:"human"`
	Preview  int64 `json:"preview"`
	Bot      int64 `json:"bot"`
	Prefetch int64 `json:"prefetch"`
	Head     int64 `json:"head"`
	Scanner  int64 `json:"scanner"`
	Agent    int64 `json:"agent"`
}

// PublicClasses are the classes that figures have, in the order of ByClassCounts.
var PublicClasses = []click.Class{click.Human, click.PreviewBot, click.Bot, click.Prefetch, click.Head, click.Scanner, click.Assistant}

func (b *ByClassCounts) of(class click.Class) *int64 {
	switch class {
	case click.Human:
		return &b.Human
	case click.PreviewBot:
		return &b.Preview
	case click.Bot:
		return &b.Bot
	case click.Prefetch:
		return &b.Prefetch
	case click.Head:
		return &b.Head
	case click.Scanner:
		return &b.Scanner
	default:
		return &b.Agent
	}
}

func (b *ByClassCounts) sum(classes []click.Class) (n int64) {
	for _, class := range classes {
		n += *b.of(class)
	}
	return n
}

// Figures are the figures of a query.
type Figures struct {
	Completeness
	Approximate bool
	Totals      Totals
	Rows        []Row
	// NextStart and NextPlace are where the next page starts, nil at the end.
	NextStart *time.Time
	NextPlace *GroupPlace
}

// Totals are the sums of a query over its whole range.
type Totals struct {
	Clicks        int64         `json:"clicks"`
	ByClass       ByClassCounts `json:"byClass"`
	VisitorDays   *int64        `json:"visitorDays"`
	LateClicks    int64         `json:"lateClicks"`
	WithoutDetail int64         `json:"withoutDetail"`
}

// Row is a row of a time series, or a group.
type Row struct {
	Start, End  time.Time
	Key         *string
	Clicks      int64
	ByClass     ByClassCounts
	VisitorDays *int64
	// Link is set for a group of a link that exists, Host for a group of a domain that exists.
	Link *RowLink
	Host *string
}

// RowLink is the link of a group.
type RowLink struct {
	ShortCode string  `json:"shortCode"`
	URL       string  `json:"url"`
	Title     *string `json:"title"`
}

// Figures returns the figures of a query.
func (r *Reader) Figures(ctx context.Context, o Organization, q FigureQuery) (f Figures, err error) {
	err = r.snapshot(ctx, o, "read figures of clicks", func(ctx context.Context, tx pgx.Tx) (err error) {
		f = Figures{Rows: []Row{}}
		if f.Completeness, err = completeness(ctx, tx, o.Key, q.From, q.To); err != nil {
			return err
		}
		read := r.totals
		if q.Interval != NoInterval {
			read = r.series
		}
		if err := read(ctx, tx, o, q, &f); err != nil {
			return err
		}
		if err := r.visitors(ctx, tx, o, q, &f); err != nil || q.GroupBy == NoGroups {
			return err
		}
		return r.groups(ctx, tx, o, q, &f)
	})
	return f, err
}

// hasVisitors reports whether the figures of a range have visitors.
func (q *FigureQuery) hasVisitors(from, to time.Time) bool {
	return len(q.Classes) == 1 && q.Classes[0] == click.Human && q.Outcomes == nil && isMidnight(from) && isMidnight(to) && !q.Links.byFields()
}

// source adds the conditions of a query to a statement over the counts in [from, to), and returns what it reads from, with the name c. If bounds
// has instants within the range, each count is on one side of each of them. Days are read from the table of days, and only what
// is left of the range from that of quarters, which is much larger.
func (q *FigureQuery) source(s *query, from, to time.Time, byLink bool, bounds ...time.Time) string {
	link, org := `link_id, `, ``
	if !byLink && !q.Links.any() {
		link, org = ``, `org_`
	}
	if q.Outcomes == nil {
		s.where(`c.outcome <> 'unknown'`)
	} else {
		s.where(`c.outcome = any (` + s.value(names(q.Outcomes)) + `::click_outcome[])`)
	}
	q.Links.restrict(s, `c.link_id`)
	var parts []string
	quarters := func(from, to time.Time) {
		if from.Before(to) {
			parts = append(parts, `select `+link+`quarter as start, class, outcome, clicks, late, undetailed from click_`+org+`quarters
				where org_key = $1 and quarter >= `+s.value(from)+` and quarter < `+s.value(to))
		}
	}
	first, last := dayOf(from.Add(day-1)), dayOf(to)
	for _, at := range bounds {
		if !isMidnight(at) {
			first = last // no day
		}
	}
	if !first.Before(last) {
		quarters(from, to)
	} else {
		quarters(from, first)
		parts = append(parts, `select `+link+`day::timestamp at time zone 'UTC', class, outcome, clicks, late, undetailed from click_`+org+`days
			where org_key = $1 and day >= `+s.value(first)+`::date and day < `+s.value(last)+`::date`)
		quarters(last, to)
	}
	return `(` + strings.Join(parts, ` union all `) + `) c (` + link + `start, class, outcome, clicks, late, undetailed)`
}

func (r *Reader) totals(ctx context.Context, tx pgx.Tx, o Organization, q FigureQuery, f *Figures) error {
	s := newQuery(o.Key)
	source := q.source(s, q.From, q.To, false)
	rows, err := tx.Query(ctx, `select c.class::text, sum(c.clicks)::bigint, sum(c.late)::bigint, sum(c.undetailed)::bigint from `+source+` where `+s.all()+` group by c.class`,
		s.arguments...)
	if err != nil {
		return err
	}
	var name string
	var clicks, late, undetailed int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &clicks, &late, &undetailed}, func() error {
		f.Totals.add(&q, name, clicks, late, undetailed)
		return nil
	}); err != nil {
		return err
	}
	f.Totals.Clicks = f.Totals.ByClass.sum(q.Classes)
	return nil
}

// add counts clicks of a class.
func (t *Totals) add(q *FigureQuery, name string, clicks, late, undetailed int64) {
	class, ok := click.ParseClass(name)
	if !ok || class == click.Internal {
		return
	}
	*t.ByClass.of(class) += clicks
	if slices.Contains(q.Classes, class) {
		t.LateClicks += late
		t.WithoutDetail += undetailed
	}
}

// visitorDays returns the visitors of each day, of a link or of all links.
func visitorDays(ctx context.Context, tx pgx.Tx, orgKey, linkID string, from, to time.Time) (days map[int64]int64, approximate bool, err error) {
	link := uuid.Nil
	if linkID != "" {
		if link, err = uuid.Parse(linkID); err != nil {
			return nil, false, err
		}
		if link == uuid.Nil {
			return nil, false, nil // no link has this id, and its rows are those of all links
		}
	}
	rows, err := tx.Query(ctx, `select day, visitors, sketch is not null or unhashed > 0 from click_visitor_days
		where org_key = $1 and link_id = $2 and day >= $3::date and day < $4::date`, orgKey, link, from, to)
	if err != nil {
		return nil, false, err
	}
	days = map[int64]int64{}
	var of time.Time
	var visitors int64
	var inexact bool
	_, err = pgx.ForEachRow(rows, []any{&of, &visitors, &inexact}, func() error {
		days[of.Unix()] = visitors
		approximate = approximate || inexact
		return nil
	})
	return days, approximate, err
}

func (r *Reader) series(ctx context.Context, tx pgx.Tx, o Organization, q FigureQuery, f *Figures) error {
	starts, more := bounds(q.Start, q.To, q.Interval, q.Location, q.Limit)
	end := starts[len(starts)-1]
	f.Rows = make([]Row, len(starts)-1)
	for i := range f.Rows {
		f.Rows[i].Start, f.Rows[i].End = starts[i], starts[i+1]
	}
	if more {
		f.NextStart = &end
	}
	s := newQuery(o.Key)
	source := q.source(s, q.Start, end, false, starts[1:len(starts)-1]...)
	rows, err := tx.Query(ctx, `select width_bucket(c.start, `+s.value(starts)+`::timestamptz[]), c.class::text, sum(c.clicks)::bigint, sum(c.late)::bigint, sum(c.undetailed)::bigint
		from `+source+` where `+s.all()+` group by 1, 2`, s.arguments...)
	if err != nil {
		return err
	}
	var bucket int
	var name string
	var clicks, late, undetailed int64
	var sum Totals
	if _, err := pgx.ForEachRow(rows, []any{&bucket, &name, &clicks, &late, &undetailed}, func() error {
		if class, ok := click.ParseClass(name); ok && class != click.Internal {
			*f.Rows[bucket-1].ByClass.of(class) += clicks
		}
		sum.add(&q, name, clicks, late, undetailed)
		return nil
	}); err != nil {
		return err
	}
	for i := range f.Rows {
		f.Rows[i].Clicks = f.Rows[i].ByClass.sum(q.Classes)
	}
	if !q.Start.Equal(q.From) || more {
		return r.totals(ctx, tx, o, q, f)
	}
	// The rows are the whole range.
	f.Totals = sum
	f.Totals.Clicks = sum.ByClass.sum(q.Classes)
	return nil
}

// visitors sets the visitors of the totals, and of the rows of a series that begin and end at a midnight (UTC), also where the whole range does
// not.
func (r *Reader) visitors(ctx context.Context, tx pgx.Tx, o Organization, q FigureQuery, f *Figures) error {
	var rows []*Row
	for i := range f.Rows {
		if row := &f.Rows[i]; q.hasVisitors(row.Start, row.End) {
			rows = append(rows, row)
		}
	}
	from, to, whole := q.From, q.To, q.hasVisitors(q.From, q.To)
	if !whole {
		if len(rows) == 0 {
			return nil
		}
		from, to = rows[0].Start, rows[len(rows)-1].End
	}
	days, approximate, err := visitorDays(ctx, tx, o.Key, q.Links.LinkID, from, to)
	if err != nil {
		return err
	}
	f.Approximate = approximate
	if whole {
		f.Totals.VisitorDays = new(int64)
		for _, n := range days {
			*f.Totals.VisitorDays += n
		}
	}
	for _, row := range rows {
		row.VisitorDays = new(int64)
		for at := row.Start; at.Before(row.End); at = at.Add(day) {
			*row.VisitorDays += days[at.Unix()]
		}
	}
	return nil
}

// sums are the columns of clicks by class, in the order of PublicClasses.
func sums(column string) (list string) {
	for i, class := range PublicClasses {
		if i > 0 {
			list += `, `
		}
		list += `coalesce(sum(` + column + `) filter (where c.class = '` + class.String() + `'), 0)::bigint as n` + fmt.Sprint(i)
	}
	return list
}

// resummed are the sums of such columns.
func resummed() (list string) {
	for i := range PublicClasses {
		if i > 0 {
			list += `, `
		}
		list += fmt.Sprintf(`sum(n%d)::bigint as n%d`, i, i)
	}
	return list
}

// linkFields are the groupings by a field of links.
var linkFields = map[GroupBy]string{
	ByChannel: `l.channel`, ByTag: `t.tag`, ByDomain: `l.domain_id::text`, ByUTMSource: `l.utm_source`, ByUTMMedium: `l.utm_medium`, ByUTMCampaign: `l.utm_campaign`,
}

func (r *Reader) groups(ctx context.Context, tx pgx.Tx, o Organization, q FigureQuery, f *Figures) error {
	if q.GroupBy == ByLink {
		return r.linkGroups(ctx, tx, o, q, f)
	}
	s := newQuery(o.Key)
	field := linkFields[q.GroupBy]
	var source, key string
	if q.GroupBy.PerDay() {
		source = "click_org_dimensions c"
		if q.Links.any() {
			source = "click_dimensions c"
		}
		s.where(`c.org_key = $1 and c.dimension = ` + s.value(string(q.GroupBy)) + `::click_dimension and c.day >= ` + s.value(q.From) + `::date and c.day < ` + s.value(q.To) + `::date`)
		q.Links.restrict(s, `c.link_id`)
		key = `c.value`
	} else {
		source = q.source(s, q.From, q.To, field != "")
		s.where(`c.class = any (` + s.value(names(PublicClasses)) + `::click_class[])`) // what the indexes by class need
		switch q.GroupBy {
		case ByClass:
			key = `c.class::text`
		case ByOutcome:
			key = `c.outcome::text`
		default:
			key = `c.link_id`
		}
	}
	sql := `with g as (select ` + key + ` as k, ` + sums(`c.clicks`) + ` from ` + source + ` where ` + s.all() + ` group by 1)`
	if field != "" {
		tags := ``
		if q.GroupBy == ByTag {
			tags = ` left join lateral unnest(l.tags) t (tag) on true`
		}
		sql += `, h as (select ` + field + ` as k, ` + resummed() + ` from g left join links l on l.id = g.k and l.organization_id = ` + s.value(o.ID) + `::uuid` + tags + ` group by 1)`
	} else {
		sql += `, h as (select * from g)`
	}
	total := ``
	for i, class := range PublicClasses {
		for _, requested := range q.Classes {
			if requested == class {
				if total != `` {
					total += ` + `
				}
				total += fmt.Sprintf(`n%d`, i)
			}
		}
	}
	sql += ` select k.k, k.total, n0, n1, n2, n3, n4, n5, n6 from (
		select k::text collate "C" as k, ` + total + ` as total, n0, n1, n2, n3, n4, n5, n6 from h) k where k.total > 0`
	sql += q.pageOf(s)
	rows, err := tx.Query(ctx, sql, s.arguments...)
	if err != nil {
		return err
	}
	var found *string
	var clicks int64
	var n [7]int64
	if _, err := pgx.ForEachRow(rows, []any{&found, &clicks, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6]}, func() error {
		row := Row{Clicks: clicks}
		if found != nil {
			text := *found
			row.Key = &text
		}
		for i, class := range PublicClasses {
			*row.ByClass.of(class) = n[i]
		}
		f.Rows = append(f.Rows, row)
		return nil
	}); err != nil {
		return err
	}
	if len(f.Rows) > q.Limit {
		f.Rows = f.Rows[:q.Limit]
		f.NextPlace = place(f.Rows, q.After)
	}
	if q.GroupBy == ByDomain {
		return r.describeDomains(ctx, tx, o, f)
	}
	return nil
}

// pageOf returns the end of a statement over the groups k with their key k.k and their k.total, after a condition: the groups of the page, and one
// more.
func (q *FigureQuery) pageOf(s *query) (sql string) {
	skip := 0
	if q.After != nil {
		clicks := s.value(q.After.Clicks)
		if q.After.Key == nil {
			sql = ` and k.total < ` + clicks
		} else {
			sql = ` and (k.total < ` + clicks + ` or k.total = ` + clicks + ` and (k.k is null or convert_to(k.k, 'UTF8') >= ` + s.value(q.After.Key) + `))`
			skip = q.After.Skip
		}
	}
	return sql + ` order by k.total desc, k.k nulls last limit ` + s.value(q.Limit+1) + ` offset ` + s.value(skip)
}

// linkGroups reads the groups of links. An organization may have very many: it sums only the requested classes of all, and the others of those
// on the page.
func (r *Reader) linkGroups(ctx context.Context, tx pgx.Tx, o Organization, q FigureQuery, f *Figures) error {
	s := newQuery(o.Key)
	source := q.source(s, q.From, q.To, true)
	s.where(`c.class = any (` + s.value(names(q.Classes)) + `::click_class[])`)
	sql := `select k.k, k.total from (select c.link_id::text collate "C" as k, sum(c.clicks)::bigint as total from ` + source + ` where ` + s.all() + ` group by c.link_id) k
		where k.total > 0`
	sql += q.pageOf(s)
	rows, err := tx.Query(ctx, sql, s.arguments...)
	if err != nil {
		return err
	}
	var key *string
	var clicks int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &clicks}, func() error {
		row := Row{Clicks: clicks}
		if key != nil {
			id := *key
			row.Key = &id
		}
		f.Rows = append(f.Rows, row)
		return nil
	}); err != nil {
		return err
	}
	if len(f.Rows) > q.Limit {
		f.Rows = f.Rows[:q.Limit]
		f.NextPlace = place(f.Rows, q.After)
	}
	if err := r.classesOfLinks(ctx, tx, o, q, f); err != nil {
		return err
	}
	return r.describeLinks(ctx, tx, o, q, f)
}

// classesOfLinks sets the clicks by class of groups of links.
func (r *Reader) classesOfLinks(ctx context.Context, tx pgx.Tx, o Organization, q FigureQuery, f *Figures) error {
	index := map[string]*Row{}
	ids := []string{}
	for i := range f.Rows {
		key := f.Rows[i].Key
		if key == nil {
			index[""] = &f.Rows[i]
			continue
		}
		ids, index[*key] = append(ids, *key), &f.Rows[i]
	}
	s := newQuery(o.Key)
	source := q.source(s, q.From, q.To, true)
	links := `c.link_id = any (` + s.value(ids) + `::uuid[])`
	if index[""] != nil {
		links = `(` + links + ` or c.link_id is null)`
	}
	s.where(links)
	rows, err := tx.Query(ctx, `select coalesce(c.link_id::text, ''), c.class::text, sum(c.clicks)::bigint from `+source+` where `+s.all()+` group by 1, 2`, s.arguments...)
	if err != nil {
		return err
	}
	var id, name string
	var clicks int64
	_, err = pgx.ForEachRow(rows, []any{&id, &name, &clicks}, func() error {
		if class, ok := click.ParseClass(name); ok && class != click.Internal {
			*index[id].ByClass.of(class) += clicks
		}
		return nil
	})
	return err
}

// place returns the place behind the last row of a page that starts at after.
func place(rows []Row, after *GroupPlace) *GroupPlace {
	last := rows[len(rows)-1]
	if last.Key == nil {
		return &GroupPlace{Clicks: last.Clicks}
	}
	key := []byte(*last.Key)
	if len(key) > maxPlaceKey {
		key = key[:maxPlaceKey]
	}
	p := &GroupPlace{Clicks: last.Clicks, Key: key}
	if after != nil && after.Clicks == p.Clicks && bytes.Equal(after.Key, p.Key) {
		p.Skip = after.Skip
	}
	for _, row := range rows {
		if row.Clicks == p.Clicks && row.Key != nil && bytes.Compare([]byte(*row.Key), key) >= 0 {
			p.Skip++
		}
	}
	return p
}

func (r *Reader) describeLinks(ctx context.Context, tx pgx.Tx, o Organization, q FigureQuery, f *Figures) error {
	var ids []string
	index := map[string]*Row{}
	for i := range f.Rows {
		if key := f.Rows[i].Key; key != nil {
			ids = append(ids, *key)
			index[*key] = &f.Rows[i]
		}
	}
	rows, err := tx.Query(ctx, `select l.id::text, l.short_code, coalesce(d.host, ''), l.title from links l join domains d on d.id = l.domain_id
		where l.organization_id = $1 and l.id = any ($2::uuid[])`, o.ID, ids)
	if err != nil {
		return err
	}
	var id, code, host string
	var title *string
	if _, err := pgx.ForEachRow(rows, []any{&id, &code, &host, &title}, func() error {
		index[id].Link = &RowLink{ShortCode: code, URL: r.linkBase(o.Key, host, code)}
		if title != nil {
			text := *title
			index[id].Link.Title = &text
		}
		return nil
	}); err != nil {
		return err
	}
	if !q.hasVisitors(q.From, q.To) {
		return nil
	}
	for i := range f.Rows {
		f.Rows[i].VisitorDays = new(int64)
	}
	rows, err = tx.Query(ctx, `select link_id::text, sum(visitors)::bigint, bool_or(sketch is not null or unhashed > 0) from click_visitor_days
		where org_key = $1 and link_id = any ($2::uuid[]) and day >= $3::date and day < $4::date group by link_id`, o.Key, ids, q.From, q.To)
	if err != nil {
		return err
	}
	var visitors int64
	var inexact bool
	_, err = pgx.ForEachRow(rows, []any{&id, &visitors, &inexact}, func() error {
		*index[id].VisitorDays = visitors
		f.Approximate = f.Approximate || inexact
		return nil
	})
	return err
}

func (r *Reader) describeDomains(ctx context.Context, tx pgx.Tx, o Organization, f *Figures) error {
	rows, err := tx.Query(ctx, `select id::text, host from domains where organization_id = $1`, o.ID)
	if err != nil {
		return err
	}
	hosts := map[string]*string{}
	var id string
	var host *string
	if _, err := pgx.ForEachRow(rows, []any{&id, &host}, func() error {
		hosts[id] = nil
		if host != nil {
			text := *host
			hosts[id] = &text
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range f.Rows {
		if key := f.Rows[i].Key; key != nil {
			if host, known := hosts[*key]; known {
				if host == nil {
					host = new(string) // the shared host, which only the API knows
				}
				f.Rows[i].Host = host
			}
		}
	}
	return nil
}
