// Package direct is `bench direct`: control beside the bare SQL that it sends (sql.go).
package direct

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"deeplink/bench/figures"
	"deeplink/bench/fill"
	"deeplink/bench/fleet"
	"deeplink/bench/load"
	"deeplink/bench/result"
)

// Command compares control with a program that sends the same SQL to the same Postgres itself (sql.go), in turn: what is
// missing to 1 is the price of HTTP, of keys, limits and checks, and of telling edges. Control, or that program, which is this process, has
// one core; Postgres, Redis and who asks control have the other.
type Command struct {
	Rounds   int           `default:"5" help:"Rounds in turn."`
	Duration time.Duration `default:"5s" help:"Length of a round."`
	Clients  int           `default:"64" help:"Connections, each of an organization of its own: a key may write 100 times a second."`
	Links    int           `default:"1000" help:"Links of each organization."`
	Only     []string      `enum:"create,get,list" default:"create,get,list" help:"What to ask for."`
	JSON     string        `type:"path" help:"File for the results."`
	Log      string        `help:"File for what the programs write." type:"path"`
}

const (
	byControl = "control"
	byPgx     = "bare pgx"
	// postgresConnections are as many to Postgres as control has by default.
	postgresConnections = 16
)

// Run prints a table.
func (c Command) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Clients < 1 || c.Links < 1 || c.Duration <= 0 {
		return errors.New("there must be a round, a client and a link")
	}
	log, err := fleet.CreateLog(c.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := load.Pin(fleet.ClientCore); err != nil { // and whatever is started from here on
		return err
	}
	f, err := fleet.Launch(ctx, 1, 0, log)
	if err != nil {
		return err
	}
	defer f.Close(context.WithoutCancel(ctx))
	if err := fleet.Pin(f.Controls[0].PID()); err != nil {
		return err
	}
	d, err := c.open(ctx, f)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	file := result.File{Command: os.Args[1:], Began: time.Now(), Machine: result.ThisMachine()}
	for _, scenario := range c.Only {
		series := []result.Series{{Contender: byControl, Scenario: scenario}, {Contender: byPgx, Scenario: scenario}}
		for range c.Rounds {
			for i, run := range []func(context.Context, string) (result.Round, error){d.askControl, d.askPostgres} {
				round, err := run(ctx, scenario)
				if err != nil {
					return fmt.Errorf("%s by %s: %w", scenario, series[i].Contender, err)
				}
				series[i].Rounds = append(series[i].Rounds, round)
			}
		}
		file.Series = append(file.Series, series...)
	}
	printDirect(file.Series, os.Stdout)
	if c.JSON != "" {
		return file.Write(c.JSON)
	}
	return nil
}

func printDirect(series []result.Series, out io.Writer) {
	figures.WriteHeader(out, "scenario", "control, a second", "bare pgx, a second", "ratio", "control p50 µs", "bare p50 µs", "control p99 µs", "bare p99 µs")
	p50 := func(r result.Round) float64 { return r.Latencies.P50 }
	p99 := func(r result.Round) float64 { return r.Latencies.P99 }
	for i := 0; i < len(series); i += 2 {
		control, bare := series[i], series[i+1]
		_, ratio := control.Against(bare, result.Round.Rate)
		figures.WriteRow(out, control.Scenario, control.Median(result.Round.Rate), bare.Median(result.Round.Rate), ratio, control.Median(p50), bare.Median(p50),
			control.Median(p99), bare.Median(p99))
	}
}

// direct is a control, its database, and organizations with links.
type direct struct {
	Command
	target  load.Target
	pool    *pgxpool.Pool
	clients []*tenant
}

// tenant is an organization that asks over one connection.
type tenant struct {
	*fill.Tenancy
	links [][16]byte
	next  int
}

func (c Command) open(ctx context.Context, f *fleet.Fleet) (*direct, error) {
	target, err := load.ParseTarget(f.Controls[0].URL())
	if err != nil {
		return nil, err
	}
	owner, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return nil, err
	}
	defer owner.Close(ctx)
	sizes := make([]int, c.Clients)
	for i := range sizes {
		sizes[i] = c.Links
	}
	tenants, err := fill.Organizations(ctx, owner, sizes)
	if err != nil {
		return nil, err
	}
	if _, err := owner.Exec(ctx, `vacuum (analyze)`); err != nil {
		return nil, err
	}
	d := &direct{Command: c, target: target}
	for _, t := range tenants {
		rows, _ := owner.Query(ctx, `select id from links where organization_id = $1`, t.ID)
		links, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
		if err != nil {
			return nil, err
		}
		d.clients = append(d.clients, &tenant{Tenancy: t, links: links})
	}
	config, err := pgxpool.ParseConfig(f.Control)
	if err != nil {
		return nil, err
	}
	config.MaxConns = postgresConnections
	d.pool, err = pgxpool.NewWithConfig(ctx, config)
	return d, err
}

// askControl does one round through the API.
func (d *direct) askControl(ctx context.Context, scenario string) (result.Round, error) {
	if err := load.Pin(fleet.ClientCore); err != nil {
		return result.Round{}, err
	}
	round, err := load.Run(ctx, load.Options{
		Targets: []load.Target{d.target}, Connections: d.Clients, Warmup: d.Duration / 5, Duration: d.Duration,
		Source: func(connection int, target load.Target) load.Source {
			return d.clients[connection].request(scenario).Source()(connection, target)
		},
	})
	if err != nil {
		return round, err
	}
	if wanted := map[string]int{"create": 201, "get": 200, "list": 200}[scenario]; round.Statuses[wanted] != round.Requests {
		return round, fmt.Errorf("%w: %v, %v", figures.ErrBound, round.Statuses, round.Failures)
	}
	return round, nil
}

func (c *tenant) request(scenario string) load.Request {
	header := []string{"Authorization: Bearer " + c.ServerKey}
	switch scenario {
	case "create":
		return load.Request{Method: "POST", Path: "/links", Header: append(header, "Content-Type: application/json"),
			Body: `{"path":"/made","title":"Made on the side","fallbackUrl":"https://shop.example.com/made"}`}
	case "list":
		return load.Request{Path: "/links?limit=100", Header: header}
	}
	var paths []string
	for _, id := range c.links {
		paths = append(paths, fmt.Sprintf("/links/%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]))
	}
	return load.Request{Paths: load.NewKeys(paths...).InTurn(), Header: header}
}

// askPostgres does one round of the same SQL.
func (d *direct) askPostgres(ctx context.Context, scenario string) (result.Round, error) {
	if err := load.Pin(fleet.ServerCore); err != nil {
		return result.Round{}, err
	}
	do := map[string]func(context.Context, *pgxpool.Pool, *tenant) error{"create": createDirectly, "get": getDirectly, "list": listDirectly}[scenario]
	start := time.Now().Add(d.Duration / 5)
	end := start.Add(d.Duration)
	histogram := result.NewHistogram()
	took := make(chan time.Duration, 1024)
	var group errgroup.Group
	for _, c := range d.clients {
		group.Go(func() error {
			for began := time.Now(); began.Before(end); began = time.Now() {
				if err := do(ctx, d.pool, c); err != nil {
					return err
				}
				if began.After(start) {
					took <- time.Since(began)
				}
			}
			return nil
		})
	}
	counted := make(chan error, 1)
	go func() {
		var failed error
		for one := range took {
			if err := histogram.RecordValue(int64(one)); err != nil {
				failed = err
			}
		}
		counted <- failed
	}()
	err := group.Wait()
	close(took)
	if err := errors.Join(err, <-counted); err != nil {
		return result.Round{}, err
	}
	latencies, err := result.Summary(histogram)
	n := histogram.TotalCount()
	return result.Round{Began: start, Requests: n, Answers: n, Seconds: d.Duration.Seconds(), Latencies: latencies}, err
}
