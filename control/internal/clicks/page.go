package clicks

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/click"
)

// RawClick is a click in a response and in an export.
type RawClick struct {
	ID       string       `json:"id"`
	At       catalog.Time `json:"at"`
	LinkID   *string      `json:"linkId"`
	Outcome  string       `json:"outcome"`
	Class    string       `json:"class"`
	Reason   string       `json:"reason"`
	Ruleset  int16        `json:"ruleset"`
	Country  *string      `json:"country"`
	Language *string      `json:"language"`
	Referrer *string      `json:"referrer"`
	OS       string       `json:"os"`
	Browser  string       `json:"browser"`
	Device   string       `json:"device"`
	Agent    *string      `json:"agent"`
	Late     bool         `json:"late"`
}

// Page is a page of clicks.
type Page struct {
	Completeness
	// KeptSince is where the kept clicks start, nil if nothing was recorded yet.
	KeptSince *time.Time
	Clicks    []RawClick
	// Next is the position behind the page. Ascending pages always have one, others have none at the end.
	Next *Position
}

// KeptSince returns the start of the oldest day whose clicks are kept, or when the first log was registered if that is later.
func (c Completeness) KeptSince(retention time.Duration) *time.Time {
	if c.CountedSince == nil {
		return nil
	}
	kept := keptFrom(c.Now, retention)
	if c.CountedSince.After(kept) {
		kept = *c.CountedSince
	}
	return &kept
}

// Clicks returns a page of the clicks that were counted. In ascending order it has only clicks before asOf, so that a client that continues
// from Next gets every click that is not late exactly once.
func (r *Reader) Clicks(ctx context.Context, o Organization, p PageRequest) (page Page, err error) {
	p.OrgKey = o.Key
	err = r.snapshot(ctx, o, "read clicks", func(ctx context.Context, tx pgx.Tx) (err error) {
		page, err = r.page(ctx, tx, p)
		return err
	})
	return page, err
}

func (r *Reader) page(ctx context.Context, tx pgx.Tx, p PageRequest) (page Page, err error) {
	if page.Completeness, err = completeness(ctx, tx, p.OrgKey, p.From, p.To); err != nil {
		return page, err
	}
	page.KeptSince = page.Completeness.KeptSince(r.retention)
	// Rows start at the day, not at the first log: a log may have clicks from before its registration.
	if kept := keptFrom(page.Now, r.retention); p.From.Before(kept) {
		p.From = kept
	}
	end := p.To
	if !p.Descending && page.AsOf.Before(end) {
		end = page.AsOf
	}
	limit := p.Limit
	p.To, p.Limit = end, limit+1
	found, err := r.raw.Page(ctx, tx, p)
	if err != nil {
		return page, err
	}
	full := len(found) > limit
	if full {
		found = found[:limit]
	}
	if page.Clicks, err = r.rows(ctx, tx, found); err != nil {
		return page, err
	}
	switch {
	case full:
		page.Next = &found[limit-1].Position
	case !p.Descending:
		// All clicks before the end were returned. The next page starts there.
		page.Next = &Position{At: end}
		if p.After != nil && p.After.At.After(end) {
			page.Next = p.After
		}
	}
	return page, nil
}

// rows returns clicks as responses have them.
func (r *Reader) rows(ctx context.Context, tx pgx.Tx, clicks []Click) ([]RawClick, error) {
	if err := r.agents.load(ctx, tx, agentIDs(clicks), false); err != nil {
		return nil, err
	}
	rows := make([]RawClick, len(clicks))
	for i := range clicks {
		c := &clicks[i]
		facts, _ := r.agents.of(c.AgentID)
		rows[i] = RawClick{
			ID: clickID(c.Position), At: catalog.Time{Time: c.At}, Outcome: c.Outcome.String(), Class: c.Reason.Class().String(), Reason: c.Reason.String(),
			Ruleset: c.Ruleset, Country: c.Country, Language: c.Language, Referrer: c.Referrer, OS: click.SystemOf(c.Evidence, facts).String(),
			Browser: click.BrowserOf(facts), Device: string(click.DeviceOf(c.Evidence, facts)), Agent: r.agents.text(c.AgentID), Late: c.Late,
		}
		if c.LinkID.Valid {
			id := c.LinkID.UUID.String()
			rows[i].LinkID = &id
		}
	}
	return rows, nil
}

// clickID returns the id of a click: its log, its batch and its number there.
func clickID(p Position) string {
	id := binary.BigEndian.AppendUint32(p.Log[:], uint32(p.Sequence))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(id, uint32(p.Ordinal)))
}

// LinkClicks are the clicks of class human over the lifetime of a link.
type LinkClicks struct {
	Human       int64         `json:"human"`
	LastHumanAt *catalog.Time `json:"lastHumanAt"`
	AsOf        catalog.Time  `json:"asOf"`
}

// LinkClicks returns the clicks of links, in the order of their ids.
func (r *Reader) LinkClicks(ctx context.Context, o Organization, ids []string) ([]LinkClicks, error) {
	all := make([]LinkClicks, len(ids))
	err := r.snapshot(ctx, o, "read the clicks of links", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select n.ordinality, a.as_of, coalesce(c.human, 0), case when c.human > 0 then c.last_human_at end
			from click_as_of a cross join unnest($2::uuid[]) with ordinality n (id, ordinality)
			left join click_links c on c.org_key = $1 and c.link_id = n.id`, o.Key, ids)
		if err != nil {
			return err
		}
		var ordinal, human int64
		var asOf time.Time
		var last *time.Time
		_, err = pgx.ForEachRow(rows, []any{&ordinal, &asOf, &human, &last}, func() error {
			all[ordinal-1] = LinkClicks{Human: human, AsOf: catalog.Time{Time: asOf}}
			if last != nil {
				all[ordinal-1].LastHumanAt = &catalog.Time{Time: *last}
			}
			return nil
		})
		return err
	})
	return all, err
}

// State returns asOf and the other times that responses have.
func (r *Reader) State(ctx context.Context, o Organization) (c Completeness, err error) {
	err = r.snapshot(ctx, o, "read the state of clicks", func(ctx context.Context, tx pgx.Tx) error {
		at := time.Now()
		c, err = completeness(ctx, tx, o.Key, at, at)
		return err
	})
	return c, err
}
