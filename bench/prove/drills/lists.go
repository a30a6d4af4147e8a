package drills

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

// longLists has many clients of one large organization list its links with filters that require counting all of them. It compares how long
// the same lists of other tenants take with how long they took before.
type longLists struct {
	links, clients int
	neighbours     neighbours
	calm, span     time.Duration
}

// filters are those for which Postgres counts all links of an organization: they match many links, or are too short for the index.
var filters = []string{"?isActive=true", "?search=oa", "?isActive=true&search=ad"}

// listers list their links with the same filters.
func listers(ctx context.Context, t *fleet.Tenant) ([]call, error) {
	for range 20 {
		if _, err := t.MakeLink(ctx); err != nil {
			return nil, err
		}
	}
	var calls []call
	for _, filter := range filters {
		calls = append(calls, call{t.ServerKey, "GET", "/links" + filter, ""})
	}
	return calls, nil
}

func (d longLists) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	heavy, err := f.NewTenant(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return nil, err
	}
	defer owner.Close(ctx)
	if _, err := (forgetting{links: d.links}).load(ctx, owner, heavy); err != nil {
		return nil, err
	}
	if _, err := owner.Exec(ctx, `vacuum analyze links`); err != nil {
		return nil, fmt.Errorf("vacuum analyze links: %w", err)
	}
	others, end, err := d.neighbours.live(ctx, f)
	if err != nil {
		return nil, err
	}
	defer end()
	fleet.Pause(ctx, 2*time.Second) // warm-up: connections are established, statements prepared
	calm := time.Now()
	fleet.Pause(ctx, d.calm)
	began := time.Now()
	own := visitor.NewVisits()
	listing, stop := context.WithTimeout(ctx, d.span)
	defer stop()
	client, hangUp := newAPIClient(f)
	defer hangUp()
	var clients sync.WaitGroup
	for i := range d.clients {
		clients.Go(func() {
			for n := i; listing.Err() == nil; n++ {
				client.send(listing, n, call{heavy.ServerKey, "GET", "/links" + filters[n%len(filters)], ""}, own)
			}
		})
	}
	clients.Wait()
	ended := time.Now()
	end()

	before, _ := others.Percentile(50, calm, began)
	during, n := others.Percentile(50, began, ended)
	p99, _ := others.P99(calm, began)
	p99During, _ := others.P99(began, ended)
	all, failed := others.Total(200)
	lists, refused := own.Answered(200)
	return []figures.Finding{
		figures.AtMost(fmt.Sprintf("median of other tenants' lists while %d clients list %d links (%s before, %.2f times; p99 %s and %s before; %d lists)", d.clients, d.links,
			figures.Milliseconds(before), during.Seconds()/before.Seconds(), figures.Milliseconds(p99During), figures.Milliseconds(p99), n), during, listSlack*before),
		figures.None(fmt.Sprintf("lists of other tenants without status 200 (%v)", others), failed, all),
		figures.Counted("lists per second of the large organization, and its 503", fmt.Sprintf("%.0f, %d", float64(lists-refused)/d.span.Seconds(), refused), "", true),
	}, nil
}

// listSlack is how much longer lists may take while another organization counts: it keeps a core of Postgres busy for each control, and on
// two cores other tenants wait for their share.
const listSlack = 4
