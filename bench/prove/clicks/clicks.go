// Package clicks is `prove clicks`: clients click links on several edges while processes are killed, and each link's clicks in Postgres are
// compared with the responses that the clients received.
package clicks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
	"deeplink/deploy/stack"
)

// Command kills processes while clients click, and compares the counted clicks with the responses.
type Command struct {
	Duration time.Duration `default:"30m" help:"Length of the run."`
	Kill     time.Duration `default:"20s" help:"Time between two kills of a random process."`
	Clients  int           `default:"64" help:"Number of connections."`
	Rate     float64       `default:"0" help:"Requests per second of all connections together. 0: as many as the edges respond to."`
	Links    int           `default:"20000" help:"Number of links."`
	Edges    int           `default:"3" help:"Number of edges."`
	Controls int           `default:"2" help:"Number of controls."`
	Seed     uint64        `default:"0" help:"Seed of the kills. 0: a random one, which is printed."`
}

const (
	// restartWithin is the longest time that a killed process is down.
	restartWithin = 5 * time.Second
	// passWithin is how soon after the last click all clicks must be in Postgres.
	passWithin = time.Minute
	// untouched is the share of links without a broken connection that the comparison needs.
	untouched = 0.95
)

// Run prints the result.
func (c Command) Run(ctx context.Context, out *proof.Output) (err error) {
	if c.Duration < time.Second || c.Kill <= 0 || c.Clients < 1 || c.Links < 2*c.Clients || c.Edges < 1 || c.Controls < 1 || c.Rate < 0 {
		return errors.New("there must be a second, a client, an edge, a control, and two links for each client")
	}
	f, err := fleet.Launch(ctx, c.Controls, c.Edges, out.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(context.WithoutCancel(ctx))) }()
	findings, err := c.prove(ctx, f, out)
	if err != nil {
		return err
	}
	figures.Print(out, findings)
	return figures.Unkept(findings)
}

// prove runs the clients and the kills, and returns what was counted.
func (c Command) prove(ctx context.Context, f *fleet.Fleet, out *proof.Output) ([]figures.Finding, error) {
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	fmt.Fprintf(out, "seed %d\n", c.Seed)
	owner, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return nil, err
	}
	links, err := makeLinks(ctx, f, owner, c.Links)
	owner.Close(ctx)
	if err != nil {
		return nil, err
	}
	l := newLedger(links)
	clicking, stop := context.WithTimeout(ctx, c.Duration)
	defer stop()
	var clients sync.WaitGroup
	for i := range c.Clients {
		clients.Go(func() {
			client{ledger: l, addrs: f.EdgeAddrs(), pause: c.pause(), random: rand.New(rand.NewPCG(c.Seed, uint64(i)))}.run(clicking)
		})
	}
	kills, err := c.kill(clicking, f, rand.New(rand.NewPCG(c.Seed, 1<<32)))
	clients.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	ended := time.Now()
	took, err := waitForClicks(ctx, f, ended)
	if err != nil {
		return nil, err
	}
	counted, err := countClicks(ctx, f)
	if err != nil {
		return nil, err
	}
	findings := l.compare(counted)
	return append(findings,
		figures.Counted(fmt.Sprintf("kills, of %d edges, %d controls and Postgres", len(f.Edges), len(f.Controls)), fmt.Sprint(kills), "≥ 1", kills > 0),
		figures.AtMost("until every log was published past the last click", took, passWithin)), nil
}

// pause returns the time between two requests of a client.
func (c Command) pause() time.Duration {
	if c.Rate == 0 {
		return 0
	}
	return time.Duration(float64(c.Clients) / c.Rate * float64(time.Second))
}

// kill kills a random process again and again until ctx ends, and starts it again.
func (c Command) kill(ctx context.Context, f *fleet.Fleet, random *rand.Rand) (kills int, err error) {
	bounded := context.WithoutCancel(ctx)
	for {
		fleet.Pause(ctx, c.Kill)
		if ctx.Err() != nil {
			return kills, nil
		}
		victim, down := random.IntN(len(f.Edges)+len(f.Controls)+1), time.Duration(random.Int64N(int64(restartWithin)))
		down = min(down, c.Kill)
		kills++
		switch {
		case victim < len(f.Edges):
			err = restart(ctx, &f.Edges[victim], down, func(addr string) (*stack.Node, error) { return f.StartEdge(bounded, addr, f.EdgeSettings...) })
		case victim < len(f.Edges)+len(f.Controls):
			err = restart(ctx, &f.Controls[victim-len(f.Edges)], down, func(addr string) (*stack.Node, error) {
				return f.StartControl(bounded, addr, f.ControlSettings...)
			})
		default:
			if err = f.Postgres.Kill(); err == nil {
				fleet.Pause(ctx, down)
				err = f.Postgres.Start(bounded)
			}
		}
		if err != nil {
			return kills, fmt.Errorf("kill %d, of process %d: %w", kills, victim, err)
		}
	}
}

func restart(ctx context.Context, node **stack.Node, down time.Duration, start func(addr string) (*stack.Node, error)) error {
	if err := (*node).Kill(); err != nil {
		return err
	}
	fleet.Pause(ctx, down)
	again, err := start((*node).Addr)
	if err == nil {
		*node = again
	}
	return err
}

// makeLinks creates links of one organization, by SQL because the API would take long, and returns their ids by the path of the short URL.
func makeLinks(ctx context.Context, f *fleet.Fleet, owner *pgx.Conn, n int) (map[string]string, error) {
	o, err := fleet.NewOrganization(ctx, f.OperatorCommand)
	if err != nil {
		return nil, err
	}
	const insert = `insert into links (id, organization_id, domain_id, short_code, path, fallback_url)
		select gen_random_uuid(), o.id, d.id, 'n' || n, '/n', 'https://example.com/' || n
		from generate_series(1, $2) n, organizations o join domains d on d.organization_id = o.id and d.host is null where o.org_key = $1
		returning '/' || $1 || '/' || short_code, id::text`
	rows, err := owner.Query(ctx, insert, o.OrgKey, n)
	if err != nil {
		return nil, err
	}
	links := make(map[string]string, n)
	var path, id string
	_, err = pgx.ForEachRow(rows, []any{&path, &id}, func() error { links[path] = id; return nil })
	return links, err
}

// waitForClicks waits until every log is closed, or published past a time and nothing of it waits.
func waitForClicks(ctx context.Context, f *fleet.Fleet, ended time.Time) (time.Duration, error) {
	const behind = `select count(*) from click_logs where state = 'open' and through <= $1`
	for {
		n := int64(1)
		if conn, err := pgx.Connect(ctx, f.Owner); err == nil {
			_ = conn.QueryRow(ctx, behind, ended).Scan(&n) // Postgres may have been killed a moment ago
			conn.Close(ctx)
		}
		if took := time.Since(ended); n == 0 || took > 2*passWithin || ctx.Err() != nil {
			return took, ctx.Err()
		}
		fleet.Pause(ctx, 100*time.Millisecond)
	}
}

// key is a link and a class.
type key struct{ link, class string }

// countClicks returns the number of clicks in Postgres by link and class.
func countClicks(ctx context.Context, f *fleet.Fleet) (map[key]int64, error) {
	conn, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	const count = `select coalesce(link_id::text, ''), class::text, sum(n)::bigint from (
			select link_id, class, count(*) as n from clicks group by 1, 2
			union all select link_id, class, sum(clicks) from click_counts group by 1, 2) all_clicks
		where class <> 'internal' group by 1, 2`
	rows, err := conn.Query(ctx, count)
	if err != nil {
		return nil, err
	}
	counted := make(map[key]int64)
	var k key
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&k.link, &k.class, &n}, func() error { counted[k] = n; return nil })
	return counted, err
}
