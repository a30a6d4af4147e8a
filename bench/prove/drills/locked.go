package drills

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

// lockedRows leaves a transaction open on the rows of one tenant, as a forgotten psql does, while that tenant keeps writing. It compares
// the latencies of other tenants with those before.
type lockedRows struct {
	lock       string        // the statement that locks, $1 is the tenant's orgKey
	every      time.Duration // between two writes of the tenant
	writes     func(ctx context.Context, t *fleet.Tenant) ([]call, error)
	neighbours neighbours
	rounds     int
	calm, span time.Duration // how long latencies are measured before, and how long while the rows are locked
}

// lockedOrganization sends 60 writes a second to an organization whose rows are locked.
func lockedOrganization(rounds int, calm, span time.Duration) lockedRows {
	return lockedRows{
		lock:  `select from organizations o join link_usage u on u.organization_id = o.id where o.org_key = $1 for update`,
		every: time.Second / 60,
		writes: func(ctx context.Context, t *fleet.Tenant) ([]call, error) {
			link, err := t.MakeLink(ctx)
			return []call{{t.ServerKey, "PATCH", "/links/" + link.ID, `{"title":"a"}`}, {t.ServerKey, "PATCH", "/links/" + link.ID, `{"title":"b"}`}}, err
		},
		neighbours: neighbours{tenants: 4, every: 40 * time.Millisecond, calls: editors},
		rounds:     rounds, calm: calm, span: span,
	}
}

// lockedDevice sends as many events for one locked device as the rate limit of its app allows.
func lockedDevice(rounds int, calm, span time.Duration) lockedRows {
	return lockedRows{
		lock: `select from devices d join organizations o on o.id = d.organization_id where o.org_key = $1 for update`,
		// 600 a minute.
		every: 105 * time.Millisecond,
		writes: func(ctx context.Context, t *fleet.Tenant) ([]call, error) {
			_, text, err := fleet.Send(ctx, t.Fleet.Controls[0].Addr, t.ClientKey, "POST", "/sdk/session", strings.NewReader(`{"deviceId":"phone"}`))
			if err != nil {
				return nil, err
			}
			var session struct{ SessionID string }
			if err := json.Unmarshal(text, &session); err != nil || session.SessionID == "" {
				return nil, fmt.Errorf("open a session: %s, %w", text, err)
			}
			// An event with a session updates its device row.
			events := fmt.Sprintf(`{"deviceId":"phone","sessionId":%q,"events":[{"name":"open"}]}`, session.SessionID)
			return []call{{t.ClientKey, "POST", "/sdk/events", events}}, nil
		},
		neighbours: neighbours{tenants: 4, every: 110 * time.Millisecond, calls: phones},
		rounds:     rounds, calm: calm, span: span,
	}
}

func (d lockedRows) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	tenant, err := f.NewTenant(ctx)
	if err != nil {
		return nil, err
	}
	writes, err := d.writes(ctx, tenant)
	if err != nil {
		return nil, err
	}
	owner, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return nil, err
	}
	defer owner.Close(ctx)
	others, end, err := d.neighbours.live(ctx, f)
	if err != nil {
		return nil, err
	}
	defer end()
	client, hangUp := newAPIClient(f)
	defer hangUp()
	own := visitor.NewVisits()
	writing, stop := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() { client.at(writing, d.every, writes, own) })
	defer func() { stop(); writer.Wait() }()

	fleet.Pause(ctx, 2*time.Second) // warm-up: connections are established, statements prepared
	began := time.Now()
	var rounds []round
	for range d.rounds {
		r, err := d.round(ctx, owner, tenant, others)
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, r)
	}
	stop()
	writer.Wait()
	end()

	slices.SortFunc(rounds, func(a, b round) int { return cmp.Compare(a.ratio(), b.ratio()) })
	median := rounds[len(rounds)/2]
	all, failed := others.Total(200)
	longest, _ := own.Percentile(100, began, time.Now())
	return []figures.Finding{
		figures.AtMost(fmt.Sprintf("p99 of other tenants while the rows are locked for %v, median of these rounds: %v", d.span, rounds), median.locked, slack*median.calm),
		figures.None(fmt.Sprintf("requests of other tenants without status 200 (%v)", others), failed, all),
		figures.Counted("statuses of the tenant whose rows are locked, and its longest wait", fmt.Sprintf("%v, %s", own, figures.Milliseconds(longest)), "", true),
	}, nil
}

// round is the p99 of the other tenants before the rows were locked and while they were.
type round struct{ calm, locked time.Duration }

func (r round) ratio() float64 { return r.locked.Seconds() / r.calm.Seconds() }

// String implements fmt.Stringer.
func (r round) String() string {
	return fmt.Sprintf("%s to %s: %.2f times", figures.Milliseconds(r.calm), figures.Milliseconds(r.locked), r.ratio())
}

// round locks the rows once.
func (d lockedRows) round(ctx context.Context, owner *pgx.Conn, tenant *fleet.Tenant, others *visitor.Visits) (round, error) {
	calm := time.Now()
	fleet.Pause(ctx, d.calm)
	tx, err := owner.Begin(ctx)
	if err != nil {
		return round{}, err
	}
	if _, err := tx.Exec(ctx, d.lock, tenant.OrgKey); err != nil {
		return round{}, fmt.Errorf("lock the rows: %w", err)
	}
	locked := time.Now()
	fleet.Pause(ctx, d.span)
	unlocked := time.Now()
	if err := tx.Rollback(ctx); err != nil {
		return round{}, fmt.Errorf("unlock the rows: %w", err)
	}
	fleet.Pause(ctx, settled) // the delayed writes of the tenant have completed
	var r round
	r.calm, _ = others.P99(calm, locked)
	r.locked, _ = others.P99(locked, unlocked)
	return r, nil
}

// settled is how long after the unlock the delayed writes have completed.
const settled = 2 * time.Second
