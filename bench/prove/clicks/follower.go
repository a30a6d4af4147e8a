package clicks

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
)

// rawPage is the number of raw clicks in a page.
const rawPage = 1000

// follower reads the raw clicks in ascending order, as they become final.
type follower struct {
	reader *reader
	after  string
	to     time.Time
	seed   maphash.Seed
	ids    map[uint64]struct{} // by hash: a run has millions of ids
	counts map[key]int64
	twice  int
	late   int
}

func newFollower(r *reader) *follower {
	return &follower{reader: r, to: r.from.AddDate(0, 0, 7), seed: maphash.MakeSeed(), ids: make(map[uint64]struct{}), counts: make(map[key]int64)}
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		// A page that could not be read is read again from the same cursor.
		if rows, err := f.step(ctx); err != nil || rows < rawPage {
			fleet.Pause(ctx, readEvery)
		}
	}
}

// finish reads the rest up to asOf, and the late clicks, which the walk may not have had.
func (f *follower) finish(ctx context.Context) error {
	for rows := rawPage; rows == rawPage; {
		var err error
		if rows, err = f.step(ctx); err != nil {
			return err
		}
	}
	after := ""
	for {
		p, err := f.page(ctx, after, "late", "true")
		if err != nil {
			return err
		}
		for _, row := range p.Data {
			f.late++
			f.note(row)
		}
		if len(p.Data) < rawPage {
			return nil
		}
		after = *p.NextCursor
	}
}

// step reads the next page, and returns its number of rows.
func (f *follower) step(ctx context.Context) (rows int, err error) {
	p, err := f.page(ctx, f.after)
	if err != nil {
		return 0, err
	}
	for _, row := range p.Data {
		if !f.note(row) {
			f.twice++
		}
	}
	f.after = *p.NextCursor
	return len(p.Data), nil
}

func (f *follower) page(ctx context.Context, after string, more ...string) (page[rawClick], error) {
	query := f.reader.everything(f.to, append(more, "order", "asc", "limit", strconv.Itoa(rawPage))...)
	if after != "" {
		query.Set("after", after)
	}
	p, err := read[rawClick](ctx, f.reader, rawPath, query)
	if err == nil && p.NextCursor == nil {
		err = fmt.Errorf("GET %s with order=asc has no nextCursor", rawPath)
	}
	return p, err
}

// note counts a click. It returns false if the click is known.
func (f *follower) note(c rawClick) bool {
	id := maphash.String(f.seed, c.ID)
	if _, known := f.ids[id]; known {
		return false
	}
	f.ids[id] = struct{}{}
	f.counts[key{c.LinkID, c.Class}]++
	return true
}

// findings compares the raw clicks with the figures.
func (f *follower) findings(counted map[key]int64) []figures.Finding {
	differ, first := 0, ""
	for k, n := range counted {
		if f.counts[k] != n {
			differ++
			if first == "" {
				first = fmt.Sprintf("; the first: %v has %d raw clicks and %d in the figures", k, f.counts[k], n)
			}
		}
	}
	for k := range f.counts {
		if counted[k] == 0 {
			differ++
		}
	}
	return []figures.Finding{
		figures.None(fmt.Sprintf("raw clicks that a follower received twice (it received %d; %d are late)", len(f.ids), f.late), f.twice, len(f.ids)),
		figures.None("links and classes with another number of raw clicks than in the figures"+first, differ, len(counted)),
	}
}
