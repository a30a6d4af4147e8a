// Package clicks is `prove clicks kill`: clients click links on several edges while processes are killed. The figures of each link are compared
// with the responses that the clients received, with the raw clicks that a follower received, and with what they were when asOf had passed them.
package clicks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	startAttempts = 3
	// passWithin is how soon after the last click asOf must have passed it.
	passWithin = time.Minute
	// untouched is the share of links whose requests all have a response that the comparison needs.
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
	api := &reader{from: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)}
	for _, control := range f.Controls {
		api.controls = append(api.controls, control.Addr)
	}
	var links map[string]string
	if api.organization, err = fleet.NewOrganization(ctx, f.OperatorCommand); err == nil {
		links, err = makeLinks(ctx, owner, api.organization.OrgKey, c.Links)
	}
	owner.Close(ctx)
	if err != nil {
		return nil, err
	}
	l := newLedger(links)
	clicking, stop := context.WithTimeout(ctx, c.Duration)
	defer stop()
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	var readers, clients sync.WaitGroup
	seen, follower := newReadings(api, slices.Collect(maps.Values(links))[:min(watchedLinks, len(links))]), newFollower(api)
	readers.Go(func() { seen.run(reading) })
	readers.Go(func() { follower.run(reading) })
	for i := range c.Clients {
		clients.Go(func() {
			client{ledger: l, addrs: f.EdgeAddrs(), pause: c.pause(), random: rand.New(rand.NewPCG(c.Seed, uint64(i)))}.run(clicking)
		})
	}
	kills, err := c.kill(clicking, f, rand.New(rand.NewPCG(c.Seed, 1<<32)))
	clients.Wait()
	ended := time.Now()
	if err == nil {
		err = ctx.Err()
	}
	var took time.Duration
	if err == nil {
		took, err = api.waitFor(ctx, ended)
	}
	stopReading()
	readers.Wait()
	if err = errors.Join(err, follower.finish(ctx), seen.again(ctx)); err != nil {
		return nil, err
	}
	counted, err := api.count(ctx)
	if err != nil {
		return nil, err
	}
	strangers, err := countElsewhere(ctx, f, api.organization.OrgKey)
	if err != nil {
		return nil, err
	}
	findings := append(l.compare(counted), figures.None("organizations with clicks in addition to the one whose links are clicked", strangers, 1))
	findings = append(append(findings, seen.findings()...), follower.findings(counted)...)
	return append(findings,
		figures.Counted(fmt.Sprintf("kills, of %d edges, %d controls and Postgres", len(f.Edges), len(f.Controls)), fmt.Sprint(kills), "≥ 1", kills > 0),
		figures.AtMost("until asOf passed the last click", took, passWithin)), nil
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
	tick := time.NewTicker(c.Kill)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return kills, nil
		case <-tick.C:
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
	// On a busy machine a start may take longer than the fleet waits. That is no reason to give up a long run.
	for attempt := 1; ; attempt++ {
		again, err := start((*node).Addr)
		if err == nil {
			*node = again
			return nil
		}
		if attempt == startAttempts {
			return err
		}
	}
}

// makeLinks creates links of an organization, by SQL because the API would take long, and returns their ids by the path of the short URL. One
// in twenty is inactive.
func makeLinks(ctx context.Context, owner *pgx.Conn, orgKey string, n int) (map[string]string, error) {
	const insert = `insert into links (id, organization_id, domain_id, short_code, path, fallback_url, is_active)
		select gen_random_uuid(), o.id, d.id, 'n' || n, '/n', 'https://example.com/' || n, n % 20 <> 0
		from generate_series(1, $2) n, organizations o join domains d on d.organization_id = o.id and d.host is null where o.org_key = $1
		returning '/' || $1 || '/' || short_code, id::text`
	rows, err := owner.Query(ctx, insert, orgKey, n)
	if err != nil {
		return nil, err
	}
	links := make(map[string]string, n)
	var path, id string
	_, err = pgx.ForEachRow(rows, []any{&path, &id}, func() error { links[path] = id; return nil })
	return links, err
}

// waitFor waits until asOf has passed a time, and returns how long after that time it was.
func (r *reader) waitFor(ctx context.Context, ended time.Time) (time.Duration, error) {
	for {
		asOf, err := r.asOf(ctx)
		if took := time.Since(ended); err == nil && asOf.After(ended) || took > 2*passWithin || ctx.Err() != nil {
			return took, ctx.Err()
		}
		fleet.Pause(ctx, 100*time.Millisecond)
	}
}

// key is a link and a class.
type key struct{ link, class string }

// count returns the number of clicks in the figures by link and class. The totals must be the sums of the links; what is not of a link is
// returned for the empty link.
func (r *reader) count(ctx context.Context) (map[key]int64, error) {
	counted, rest := make(map[key]int64), make(map[string]int64)
	query := r.everything(r.from.AddDate(0, 0, 7), "groupBy", "link", "limit", "1000")
	for {
		p, err := read[linkFigure](ctx, r, figuresPath, query)
		if err != nil {
			return nil, err
		}
		if p.Totals.WithoutDetail != 0 {
			return nil, fmt.Errorf("%d clicks have no details, although the logs were never full", p.Totals.WithoutDetail)
		}
		if query.Get("after") == "" {
			maps.Copy(rest, p.Totals.ByClass)
		}
		for _, row := range p.Data {
			for class, n := range row.ByClass {
				if n == 0 || row.Key == nil {
					continue
				}
				counted[key{*row.Key, class}] += n
				rest[class] -= n
			}
		}
		if p.NextCursor == nil {
			break
		}
		query.Set("after", *p.NextCursor)
	}
	for class, n := range rest {
		if n != 0 {
			counted[key{"", class}] = n
		}
	}
	return counted, nil
}

// countElsewhere returns the number of organizations with clicks, in addition to one and to that of the canary.
func countElsewhere(ctx context.Context, f *fleet.Fleet, orgKey string) (n int, err error) {
	conn, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	const count = `select count(distinct org_key) from click_org_days where org_key <> $1 and class <> 'internal' and clicks > 0`
	return n, conn.QueryRow(ctx, count, orgKey).Scan(&n)
}
