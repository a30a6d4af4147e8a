package clicks

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// sketch is a HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007) with 2^14 registers of a byte. Visitors are hashes already. Its standard
// error is 0.8 %. It is used above maxVisitorSet only, where the estimate needs no correction for small numbers, and 64 bits need none for
// large ones.
type sketch []byte

const sketchBits = 14

func newSketch() sketch { return make(sketch, 1<<sketchBits) }

// add adds a visitor, and reports whether that changed the sketch.
func (s sketch) add(visitor int64) bool {
	hash := uint64(visitor)
	register := hash >> (64 - sketchBits)
	// The bit that ends the run of zeros bounds it.
	rank := byte(bits.LeadingZeros64(hash<<sketchBits|1<<(sketchBits-1)) + 1)
	if s[register] >= rank {
		return false
	}
	s[register] = rank
	return true
}

// estimate returns the number of visitors.
func (s sketch) estimate() int64 {
	const m = 1 << sketchBits
	sum := 0.0
	for _, rank := range s {
		sum += math.Ldexp(1, -int(rank))
	}
	const alpha = 0.7213 / (1 + 1.079/m)
	return int64(math.Round(alpha * m * m / sum))
}

const (
	makeVisitorDaysSQL = `
		insert into click_visitor_days (org_key, link_id, day)
		select org_key, link_id, start at time zone 'UTC' from unnest($1::text[], $2::uuid[], $3::timestamptz[]) n (org_key, link_id, start)
		on conflict (org_key, link_id, day) do nothing`
	lockVisitorDaysSQL = `
		select n.ordinality, v.visitors, v.sketch
		from unnest($1::text[], $2::uuid[], $3::timestamptz[]) with ordinality n (org_key, link_id, start, ordinality)
		cross join lateral (
			select ctid, visitors, sketch from click_visitor_days v
			where v.org_key = n.org_key and v.link_id = n.link_id and v.day = (n.start at time zone 'UTC')::date for no key update) v`
	addVisitorsSQL = `
		with added as (
			insert into click_visitors (org_key, link_id, visitor, day)
			select org_key, link_id, visitor, start at time zone 'UTC' from unnest($1::text[], $2::uuid[], $3::timestamptz[], $4::bigint[]) n (org_key, link_id, start, visitor)
			on conflict do nothing returning org_key, link_id, day)
		select org_key, link_id, day, count(*) from added group by org_key, link_id, day`
	updateVisitorDaysSQL = `
		update click_visitor_days v set visitors = n.visitors, unhashed = v.unhashed + n.unhashed, sketch = coalesce(n.sketch, v.sketch)
		from unnest($1::text[], $2::uuid[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bytea[]) n (org_key, link_id, start, visitors, unhashed, sketch)
		where v.org_key = n.org_key and v.link_id = n.link_id and v.day = (n.start at time zone 'UTC')::date`
	visitorSetSQL = `
		select visitor from click_visitors
		where org_key = $1 and link_id = $2 and day = ($3::timestamptz at time zone 'UTC')::date`
	// A visitor stays if another click of class human remains.
	removeVisitorsSQL = `
		with remaining as materialized (
			select distinct c.visitor from clicks c
			where c.org_key = $1 and c.at >= $3 and c.at < $3::timestamptz + interval '1 day' and c.class = 'human' and c.visitor = any ($4)
			  and ($2 = '00000000-0000-0000-0000-000000000000'::uuid or c.link_id = $2)` + isCounted + `)
		delete from click_visitors v
		where v.org_key = $1 and v.link_id = $2 and v.day = ($3::timestamptz at time zone 'UTC')::date and v.visitor = any ($4)
		  and not exists (select from remaining r where r.visitor = v.visitor)`
)

// visitorDay is a row of click_visitor_days that is locked.
type visitorDay struct {
	visitors int64
	sketch   sketch // nil: the visitors are in click_visitors
	changed  bool
}

// writeVisitors adds the visitors to their sets. The rows of click_visitor_days are locked first: of two transactions that change a set, the
// second sees all that the first did.
func (f *figures) writeVisitors(ctx context.Context, tx pgx.Tx) error {
	for keys := range slices.Chunk(sortedKeys(f.visitors, compareVisitors), portion) {
		if err := f.writeVisitorDays(ctx, tx, keys); err != nil {
			return err
		}
	}
	return nil
}

func (f *figures) writeVisitorDays(ctx context.Context, tx pgx.Tx, keys []visitorKey) error {
	n := len(keys)
	orgKeys, links, days := make([]string, n), make([]uuid.UUID, n), make([]time.Time, n)
	index := make(map[visitorKey]int, n)
	for i, k := range keys {
		orgKeys[i], links[i], days[i] = k.orgKey, k.link.UUID, time.Unix(k.day, 0).UTC()
		index[k] = i
	}
	if _, err := tx.Exec(ctx, makeVisitorDaysSQL, orgKeys, links, days); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, lockVisitorDaysSQL, orgKeys, links, days)
	if err != nil {
		return err
	}
	locked := make([]visitorDay, n)
	var ordinal, visitors int64
	var registers []byte
	if _, err := pgx.ForEachRow(rows, []any{&ordinal, &visitors, &registers}, func() error {
		locked[ordinal-1] = visitorDay{visitors: visitors, sketch: slices.Clone(registers)}
		return nil
	}); err != nil {
		return err
	}

	type member struct {
		of      int
		visitor int64
	}
	var members []member
	for i, k := range keys {
		sum, at := f.visitors[k], &locked[i]
		for visitor := range sum.added {
			if at.sketch == nil {
				members = append(members, member{i, visitor})
			} else if at.sketch.add(visitor) {
				at.changed = true
			}
		}
		if at.sketch == nil && len(sum.removed) > 0 {
			var removed []int64
			for visitor := range sum.removed {
				if !sum.added[visitor] {
					removed = append(removed, visitor)
				}
			}
			slices.Sort(removed)
			tag, err := tx.Exec(ctx, removeVisitorsSQL, k.orgKey, links[i], days[i], removed)
			if err != nil {
				return err
			}
			at.visitors -= tag.RowsAffected()
		}
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.visitor, b.visitor)) })
	for part := range slices.Chunk(members, portion) {
		m := len(part)
		orgs, ofLinks, starts, visitors := make([]string, m), make([]uuid.UUID, m), make([]time.Time, m), make([]int64, m)
		for i, v := range part {
			orgs[i], ofLinks[i], starts[i], visitors[i] = orgKeys[v.of], links[v.of], days[v.of], v.visitor
		}
		rows, err := tx.Query(ctx, addVisitorsSQL, orgs, ofLinks, starts, visitors)
		if err != nil {
			return err
		}
		var org string
		var link uuid.UUID
		var of time.Time
		var added int64
		if _, err := pgx.ForEachRow(rows, []any{&org, &link, &of, &added}, func() error {
			locked[index[visitorKey{linkKey{org, uuid.NullUUID{UUID: link, Valid: link != uuid.Nil}}, of.Unix()}]].visitors += added
			return nil
		}); err != nil {
			return err
		}
	}

	counts, unhashed, sketches := make([]int64, n), make([]int64, n), make([][]byte, n)
	for i, k := range keys {
		at := &locked[i]
		if at.sketch == nil && at.visitors > maxVisitorSet {
			if at.sketch, err = readSketch(ctx, tx, k, days[i]); err != nil {
				return err
			}
			at.changed = true
		}
		if at.changed {
			at.visitors, sketches[i] = at.sketch.estimate(), at.sketch
		}
		counts[i], unhashed[i] = at.visitors, f.visitors[k].unhashed
	}
	_, err = tx.Exec(ctx, updateVisitorDaysSQL, orgKeys, links, days, counts, unhashed, sketches)
	return err
}

// readSketch returns the sketch of a set. The rows of the set stay until the partition of the day is dropped.
func readSketch(ctx context.Context, tx pgx.Tx, k visitorKey, of time.Time) (sketch, error) {
	rows, err := tx.Query(ctx, visitorSetSQL, k.orgKey, k.link.UUID, of)
	if err != nil {
		return nil, err
	}
	s := newSketch()
	var visitor int64
	_, err = pgx.ForEachRow(rows, []any{&visitor}, func() error {
		s.add(visitor)
		return nil
	})
	return s, err
}
