package drills

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

// forgetting makes every edge drop its whole cache at once, under full load: an epoch bump, as after a failover of Postgres.
type forgetting struct {
	links   int
	clients int           // connections to one edge, each a closed loop of clicks
	calm    time.Duration // how long hits are measured, before and after
	settled time.Duration // when they must be as fast as before
}

const (
	// slack is how much a p99 varies from one moment to the next on two busy cores.
	slack = 2
	// edgeConnections is the maximum per edge: EDGE_DATABASE_CONNECTIONS and the connection that polls.
	edgeConnections = 16 + 1
)

func (d forgetting) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	t, err := f.NewTenant(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return nil, err
	}
	defer owner.Close(ctx)
	keys, err := d.load(ctx, owner, t)
	if err != nil {
		return nil, err
	}
	edge := f.Edges[0].Addr
	clicks := visitor.NewVisits()
	background, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	end := func() { stop(); clients.Wait() }
	defer end()
	for range d.clients {
		clients.Go(func() {
			v := visitor.New(edge)
			defer v.HangUp()
			for background.Err() == nil {
				clicks.Click(v, keys[rand.IntN(len(keys))])
			}
		})
	}
	fleet.Pause(ctx, 2*time.Second+d.calm)
	bumped := time.Now()
	if _, err := owner.Exec(ctx, `insert into changes (tags) values ('{*}')`); err != nil {
		return nil, fmt.Errorf("void all entries: %w", err)
	}
	most := 0
	for time.Since(bumped) < d.settled {
		var n int
		if err := owner.QueryRow(ctx, `select count(*) from pg_stat_activity where usename = 'deeplink_edge_login'`).Scan(&n); err != nil {
			return nil, fmt.Errorf("count the connections: %w", err)
		}
		most = max(most, n)
		fleet.Pause(ctx, 20*time.Millisecond)
	}
	fleet.Pause(ctx, d.calm)
	end()
	before, _ := clicks.P99(bumped.Add(-d.calm), bumped)
	during, _ := clicks.P99(bumped, bumped.Add(500*time.Millisecond))
	after, n := clicks.P99(bumped.Add(d.settled), bumped.Add(d.settled+d.calm))
	all, others := clicks.Total(302)
	bound := edgeConnections * len(f.Edges)
	return []figures.Finding{
		figures.Counted("most connections of the edges to Postgres", fmt.Sprint(most), fmt.Sprintf("≤ %d", bound), most <= bound && most > 0),
		figures.AtMost(fmt.Sprintf("p99 of hits %v after all entries were voided (%s before, %s in the first half second, %.0f clicks a second)",
			d.settled, figures.Milliseconds(before), figures.Milliseconds(during), float64(n)/d.calm.Seconds()), after, slack*before),
		figures.None(fmt.Sprintf("clicks without status 302 (%v)", clicks), others, all),
	}, nil
}

// load inserts links directly, faster than the API's rate limit allows, and returns their paths.
func (d forgetting) load(ctx context.Context, owner *pgx.Conn, t *fleet.Tenant) (paths []string, err error) {
	_, err = owner.Exec(ctx, `
		insert into links (id, organization_id, domain_id, short_code, path, fallback_url)
		select gen_random_uuid(), o.id, d.id, 'load' || n, '/x', $2
		from generate_series(1, $3) n, organizations o join domains d on d.organization_id = o.id and d.host is null
		where o.org_key = $1`, t.OrgKey, fleet.Target(0), d.links)
	if err != nil {
		return nil, fmt.Errorf("insert links: %w", err)
	}
	for n := range d.links {
		paths = append(paths, fmt.Sprintf("/%s/load%d", t.OrgKey, n+1))
	}
	return paths, nil
}
