package clicks

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/click"
)

// figures are sums of clicks, to be added to the tables. Sums may be negative: a reclassification takes clicks out.
//
// All tables are written in one order, and the rows of each table in the order of their keys, so that concurrent writers do not deadlock.
type figures struct {
	visitorsFrom time.Time // visitors of earlier days are no longer kept

	quarters map[quarterKey]counts
	values   map[valueKey]int64
	// newValues has the values of open dimensions, in the order of their first clicks.
	newValues []openValue
	seen      map[openValue]bool
	links     map[linkKey]linkSum
	visitors  map[visitorKey]*visitorSum
	agents    map[int32]time.Time // the last day of each agent
}

type linkKey struct {
	orgKey string
	link   uuid.NullUUID
}

type quarterKey struct {
	linkKey
	start   int64 // of the quarter or the day, in Unix seconds
	class   click.Class
	outcome click.Outcome
}

type counts struct{ clicks, late, undetailed int64 }

type valueKey struct {
	linkKey
	day       int64
	class     click.Class
	dimension string
	value     string // noValue: null
}

// noValue stands for null in a valueKey. It cannot be a value: values have no NUL.
const noValue = "\x00"

// openValue is a value of a dimension whose number of values is not bounded.
type openValue struct {
	orgKey    string
	day       int64
	dimension string
	value     string
}

type linkSum struct {
	human int64
	last  time.Time
	// lost are clicks that are no longer human: the last one may be among them.
	lost bool
}

type visitorKey struct {
	linkKey // without a link: all links of the organization
	day     int64
}

type visitorSum struct {
	added    map[int64]bool
	removed  map[int64]bool
	unhashed int64
}

func newFigures(visitorsFrom time.Time) *figures {
	return &figures{
		visitorsFrom: visitorsFrom, quarters: map[quarterKey]counts{}, values: map[valueKey]int64{}, seen: map[openValue]bool{},
		links: map[linkKey]linkSum{}, visitors: map[visitorKey]*visitorSum{}, agents: map[int32]time.Time{},
	}
}

// add counts n clicks like c, under the class. n is 1, or -1 to take a click out. facts are those of the click's agent.
func (f *figures) add(c *Click, class click.Class, facts click.Facts, n int64) {
	if class == click.Internal {
		return
	}
	f.count(c.OrgKey, c.LinkID, c.At, class, c.Outcome, n, c.Late, false)
	of := dayOf(c.At)
	for _, v := range [...]struct{ dimension, value string }{
		{click.DimensionCountry, orNoValue(c.Country)},
		{click.DimensionOS, click.SystemOf(c.Evidence, facts).String()},
		{click.DimensionBrowser, click.BrowserOf(facts)},
		{click.DimensionDevice, string(click.DeviceOf(c.Evidence, facts))},
		{click.DimensionLanguage, orNoValue(c.Language)},
		{click.DimensionReferrer, orNoValue(c.Referrer)},
	} {
		f.countValue(c.OrgKey, c.LinkID, of, class, v.dimension, v.value, n)
	}
	if class == click.Human {
		f.countHuman(c.OrgKey, c.LinkID, c.At, n)
		f.countVisitor(linkKey{orgKey: c.OrgKey}, of, c.Visitor, n)
		if c.LinkID.Valid {
			f.countVisitor(linkKey{c.OrgKey, c.LinkID}, of, c.Visitor, n)
		}
	}
	if c.AgentID != nil && n > 0 && of.After(f.agents[*c.AgentID]) {
		f.agents[*c.AgentID] = of
	}
}

// addCounted counts n clicks of which only their number is known.
func (f *figures) addCounted(orgKey string, link uuid.NullUUID, quarter time.Time, class click.Class, outcome click.Outcome, n int64, late bool) {
	if class == click.Internal {
		return
	}
	f.count(orgKey, link, quarter, class, outcome, n, late, outcome != click.Unknown)
	if outcome == click.Unknown {
		return
	}
	of := dayOf(quarter)
	for _, dimension := range dimensions {
		f.countValue(orgKey, link, of, class, dimension, click.Unrecorded, n)
	}
	if class == click.Human {
		f.countHuman(orgKey, link, quarter, n)
		f.countVisitor(linkKey{orgKey: orgKey}, of, nil, n)
		if link.Valid {
			f.countVisitor(linkKey{orgKey, link}, of, nil, n)
		}
	}
}

// dimensions are the dimensions of clicks.
var dimensions = []string{click.DimensionCountry, click.DimensionOS, click.DimensionBrowser, click.DimensionDevice, click.DimensionLanguage, click.DimensionReferrer}

func orNoValue(s *string) string {
	if s == nil {
		return noValue
	}
	return *s
}

func (f *figures) count(orgKey string, link uuid.NullUUID, at time.Time, class click.Class, outcome click.Outcome, n int64, late, undetailed bool) {
	key := quarterKey{linkKey{orgKey, link}, at.Truncate(Quarter).Unix(), class, outcome}
	sum := f.quarters[key]
	sum.clicks += n
	if late {
		sum.late += n
	}
	if undetailed {
		sum.undetailed += n
	}
	f.quarters[key] = sum
}

func (f *figures) countValue(orgKey string, link uuid.NullUUID, of time.Time, class click.Class, dimension, value string, n int64) {
	if (dimension == click.DimensionLanguage || dimension == click.DimensionReferrer) && value != noValue && value != click.Unrecorded {
		open := openValue{orgKey, of.Unix(), dimension, value}
		if !f.seen[open] {
			f.seen[open] = true
			f.newValues = append(f.newValues, open)
		}
	}
	f.values[valueKey{linkKey{orgKey, link}, of.Unix(), class, dimension, value}] += n
}

func (f *figures) countHuman(orgKey string, link uuid.NullUUID, at time.Time, n int64) {
	if !link.Valid {
		return
	}
	key := linkKey{orgKey, link}
	sum := f.links[key]
	sum.human += n
	if n < 0 {
		sum.lost = true
	} else if at.After(sum.last) {
		sum.last = at
	}
	f.links[key] = sum
}

// countVisitor adds the visitor of a click, or notes that a click of the visitor was taken out.
func (f *figures) countVisitor(key linkKey, of time.Time, visitor *int64, n int64) {
	k := visitorKey{key, of.Unix()}
	sum := f.visitors[k]
	if sum == nil {
		sum = &visitorSum{added: map[int64]bool{}, removed: map[int64]bool{}}
		f.visitors[k] = sum
	}
	switch {
	case visitor == nil || of.Before(f.visitorsFrom):
		sum.unhashed += n
	case n < 0:
		sum.removed[*visitor] = true
	default:
		sum.added[*visitor] = true
	}
}

func compareLinks(a, b linkKey) int {
	if c := strings.Compare(a.orgKey, b.orgKey); c != 0 {
		return c
	}
	if a.link.Valid != b.link.Valid {
		if b.link.Valid {
			return -1
		}
		return 1
	}
	return bytes.Compare(a.link.UUID[:], b.link.UUID[:])
}

func compareQuarters(a, b quarterKey) int {
	return cmp.Or(compareLinks(a.linkKey, b.linkKey), cmp.Compare(a.start, b.start), cmp.Compare(a.class, b.class), cmp.Compare(a.outcome, b.outcome))
}

func compareValues(a, b valueKey) int {
	return cmp.Or(compareLinks(a.linkKey, b.linkKey), strings.Compare(a.dimension, b.dimension), cmp.Compare(a.day, b.day),
		strings.Compare(a.value, b.value), cmp.Compare(a.class, b.class))
}

func compareVisitors(a, b visitorKey) int {
	return cmp.Or(compareLinks(a.linkKey, b.linkKey), cmp.Compare(a.day, b.day))
}

func sortedKeys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}

// portion is the number of rows per statement, far below what takes 10 s.
const portion = 10_000

// write adds the figures to all tables.
func (f *figures) write(ctx context.Context, tx pgx.Tx) error {
	others, err := f.limitValues(ctx, tx)
	if err != nil {
		return err
	}
	f.fold(others)
	for _, step := range []func(context.Context, pgx.Tx) error{f.writeCounts, f.writeValues, f.writeLinks, f.writeVisitors, f.writeAgents} {
		if err := step(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// fold moves the values beyond the limit to the one that stands for all of them.
func (f *figures) fold(others map[openValue]bool) {
	if len(others) == 0 {
		return
	}
	for key, n := range f.values {
		if others[openValue{key.orgKey, key.day, key.dimension, key.value}] {
			delete(f.values, key)
			key.value = click.OtherValue
			f.values[key] += n
		}
	}
}

// by sums the counts under other keys, for a coarser table.
func (f *figures) by(key func(quarterKey) quarterKey) map[quarterKey]counts {
	sums := map[quarterKey]counts{}
	for k, n := range f.quarters {
		k = key(k)
		sum := sums[k]
		sum.clicks, sum.late, sum.undetailed = sum.clicks+n.clicks, sum.late+n.late, sum.undetailed+n.undetailed
		sums[k] = sum
	}
	return sums
}

const secondsPerDay = int64(day / time.Second)

// startOfDay returns the start of the day of a time in Unix seconds, which may be negative.
func startOfDay(at int64) int64 {
	return at - ((at%secondsPerDay)+secondsPerDay)%secondsPerDay
}

func (f *figures) writeCounts(ctx context.Context, tx pgx.Tx) error {
	ofDay := func(k quarterKey) quarterKey { k.start = startOfDay(k.start); return k }
	ofOrg := func(k quarterKey) quarterKey { k.link = uuid.NullUUID{}; return k }
	for _, table := range []struct {
		name, column, kind string
		links              bool
		rows               map[quarterKey]counts
	}{
		{"click_org_quarters", "quarter", "timestamptz", false, f.by(ofOrg)},
		{"click_org_days", "day", "date", false, f.by(func(k quarterKey) quarterKey { return ofOrg(ofDay(k)) })},
		{"click_quarters", "quarter", "timestamptz", true, f.quarters},
		{"click_days", "day", "date", true, f.by(ofDay)},
	} {
		link, from := ``, ``
		if table.links {
			link, from = `link_id, `, `r.link_id, `
		}
		sql := `insert into ` + table.name + ` as t (org_key, ` + link + table.column + `, class, outcome, clicks, late, undetailed)
			select r.org_key, ` + from + `r.start` + cast(table.kind) + `, r.class::click_class, r.outcome::click_outcome, r.clicks, r.late, r.undetailed
			from unnest($1::text[], $2::uuid[], $3::timestamptz[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[])
				r (org_key, link_id, start, class, outcome, clicks, late, undetailed)
			on conflict (org_key, ` + link + table.column + `, class, outcome) do update
			set clicks = t.clicks + excluded.clicks, late = t.late + excluded.late, undetailed = t.undetailed + excluded.undetailed`
		for keys := range slices.Chunk(sortedKeys(table.rows, compareQuarters), portion) {
			n := len(keys)
			orgKeys, links, starts, classes, outcomes := make([]string, n), make([]uuid.NullUUID, n), make([]time.Time, n), make([]string, n), make([]string, n)
			clicks, late, undetailed := make([]int64, n), make([]int64, n), make([]int64, n)
			for i, k := range keys {
				orgKeys[i], links[i], starts[i], classes[i], outcomes[i] = k.orgKey, k.link, time.Unix(k.start, 0), k.class.String(), k.outcome.String()
				sum := table.rows[k]
				clicks[i], late[i], undetailed[i] = sum.clicks, sum.late, sum.undetailed
			}
			if _, err := tx.Exec(ctx, sql, orgKeys, links, starts, classes, outcomes, clicks, late, undetailed); err != nil {
				return err
			}
		}
	}
	return nil
}

// cast converts a time to the type of a column.
func cast(kind string) string {
	if kind == "date" {
		return ` at time zone 'UTC'`
	}
	return ``
}

func (f *figures) writeValues(ctx context.Context, tx pgx.Tx) error {
	ofOrg := map[valueKey]int64{}
	for k, n := range f.values {
		k.link = uuid.NullUUID{}
		ofOrg[k] += n
	}
	for _, table := range []struct {
		name, link, from string
		rows             map[valueKey]int64
	}{
		{"click_org_dimensions", ``, ``, ofOrg},
		{"click_dimensions", `link_id, `, `r.link_id, `, f.values},
	} {
		sql := `insert into ` + table.name + ` as t (org_key, ` + table.link + `dimension, day, class, value, clicks)
			select r.org_key, ` + table.from + `r.dimension::click_dimension, r.start at time zone 'UTC', r.class::click_class, r.value, r.clicks
			from unnest($1::text[], $2::uuid[], $3::text[], $4::timestamptz[], $5::text[], $6::text[], $7::bigint[])
				r (org_key, link_id, dimension, start, class, value, clicks)
			on conflict (org_key, ` + table.link + `dimension, day, class, value) do update set clicks = t.clicks + excluded.clicks`
		for keys := range slices.Chunk(sortedKeys(table.rows, compareValues), portion) {
			n := len(keys)
			orgKeys, links, names, days, classes := make([]string, n), make([]uuid.NullUUID, n), make([]string, n), make([]time.Time, n), make([]string, n)
			values, clicks := make([]*string, n), make([]int64, n)
			for i, k := range keys {
				orgKeys[i], links[i], names[i], days[i], classes[i] = k.orgKey, k.link, k.dimension, time.Unix(k.day, 0), k.class.String()
				if k.value != noValue {
					values[i] = &k.value
				}
				clicks[i] = table.rows[k]
			}
			if _, err := tx.Exec(ctx, sql, orgKeys, links, names, days, classes, values, clicks); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	knownValuesSQL = `
		select n.ordinality from unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[]) with ordinality n (org_key, start, dimension, value, ordinality)
		where exists (select from click_org_dimensions d where d.org_key = n.org_key and d.dimension = n.dimension::click_dimension
		              and d.day = (n.start at time zone 'UTC')::date and d.value = n.value)`
	lockValuesSQL  = `select pg_advisory_xact_lock(hashtextextended($1, 0))`
	countValuesSQL = `
		select count(distinct value) from click_org_dimensions
		where org_key = $1 and day = ($2::timestamptz at time zone 'UTC')::date and dimension = $3::click_dimension and value <> '(other)' and value <> '(unrecorded)'`
)

// limitValues returns the values that are beyond the first MaxValues of their organization, day and dimension.
func (f *figures) limitValues(ctx context.Context, tx pgx.Tx) (others map[openValue]bool, err error) {
	fresh, err := unknownValues(ctx, tx, f.newValues)
	if err != nil || len(fresh) == 0 {
		return nil, err
	}
	groups := map[openValue][]openValue{}
	for _, v := range fresh {
		group := openValue{v.orgKey, v.day, v.dimension, ""}
		groups[group] = append(groups[group], v)
	}
	others = map[openValue]bool{}
	for _, group := range sortedKeys(groups, func(a, b openValue) int {
		return cmp.Or(strings.Compare(a.orgKey, b.orgKey), cmp.Compare(a.day, b.day), strings.Compare(a.dimension, b.dimension))
	}) {
		// The lock lasts until the commit, so no other transaction adds values between the count and the insert.
		start := time.Unix(group.day, 0).UTC()
		if _, err := tx.Exec(ctx, lockValuesSQL, "click values "+group.orgKey+" "+start.Format(time.DateOnly)+" "+group.dimension); err != nil {
			return nil, err
		}
		values, err := unknownValues(ctx, tx, groups[group])
		if err != nil {
			return nil, err
		}
		var known int
		if err := tx.QueryRow(ctx, countValuesSQL, group.orgKey, start, group.dimension).Scan(&known); err != nil {
			return nil, err
		}
		for i, v := range values {
			if known+i >= click.MaxValues {
				others[v] = true
			}
		}
	}
	return others, nil
}

// unknownValues returns those of the values that have no row yet, in the same order.
func unknownValues(ctx context.Context, tx pgx.Tx, values []openValue) (unknown []openValue, err error) {
	for part := range slices.Chunk(values, portion) {
		n := len(part)
		orgKeys, days, names, texts := make([]string, n), make([]time.Time, n), make([]string, n), make([]string, n)
		for i, v := range part {
			orgKeys[i], days[i], names[i], texts[i] = v.orgKey, time.Unix(v.day, 0), v.dimension, v.value
		}
		rows, err := tx.Query(ctx, knownValuesSQL, orgKeys, days, names, texts)
		if err != nil {
			return nil, err
		}
		known, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		has := make([]bool, n)
		for _, i := range known {
			has[i-1] = true
		}
		for i, v := range part {
			if !has[i] {
				unknown = append(unknown, v)
			}
		}
	}
	return unknown, nil
}

const addLinksSQL = `
	insert into click_links as t (org_key, link_id, human, last_human_at)
	select org_key, link_id, human, last from unnest($1::text[], $2::uuid[], $3::bigint[], $4::timestamptz[]) r (org_key, link_id, human, last)
	on conflict (org_key, link_id) do update set human = t.human + excluded.human, last_human_at = greatest(t.last_human_at, excluded.last_human_at)`

// lastHumanSQL finds the last click of class human of a link by the last quarter, or the last day, in which the link has one.
const lastHumanSQL = `
	update click_links t set last_human_at = (
		select greatest(start, (
			select max(c.at) from clicks c
			where c.org_key = $1 and c.at >= start and c.at < start + span and c.link_id = $2 and c.class = 'human'))
		from (
			select coalesce(q.quarter, d.day::timestamp at time zone 'UTC') as start, case when q.quarter is null then interval '1 day' else interval '15 minutes' end as span
			from (select max(day) as day from click_days where org_key = $1 and link_id = $2 and class = 'human' and clicks > 0) d
			left join lateral (
				select max(quarter) as quarter from click_quarters
				where org_key = $1 and link_id = $2 and class = 'human' and clicks > 0
				  and quarter >= d.day::timestamp at time zone 'UTC' and quarter < (d.day + 1)::timestamp at time zone 'UTC') q on true
			where d.day is not null) last)
	where org_key = $1 and link_id = $2`

func (f *figures) writeLinks(ctx context.Context, tx pgx.Tx) error {
	for keys := range slices.Chunk(sortedKeys(f.links, compareLinks), portion) {
		n := len(keys)
		orgKeys, links, human, last := make([]string, n), make([]uuid.UUID, n), make([]int64, n), make([]*time.Time, n)
		for i, k := range keys {
			sum := f.links[k]
			orgKeys[i], links[i], human[i] = k.orgKey, k.link.UUID, sum.human
			if !sum.last.IsZero() {
				last[i] = &sum.last
			}
		}
		if _, err := tx.Exec(ctx, addLinksSQL, orgKeys, links, human, last); err != nil {
			return err
		}
		for _, k := range keys {
			if f.links[k].lost {
				if _, err := tx.Exec(ctx, lastHumanSQL, k.orgKey, k.link.UUID); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// writeAgents stores on which day the agents were last seen: at most one change per agent and day.
func (f *figures) writeAgents(ctx context.Context, tx pgx.Tx) error {
	if len(f.agents) == 0 {
		return nil
	}
	ids := sortedKeys(f.agents, cmp.Compare[int32])
	days := make([]time.Time, len(ids))
	for i, id := range ids {
		days[i] = f.agents[id]
	}
	_, err := tx.Exec(ctx, `update click_agents a set seen_on = n.day
		from unnest($1::int[], $2::date[]) n (id, day) where a.id = n.id and a.seen_on < n.day`, ids, days)
	return err
}
