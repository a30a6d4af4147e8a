package clicks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/testfleet"
	"deeplink/deploy/stack"
	"deeplink/shared/testkit"
)

const (
	bound = 90 * time.Second
	// What lets edges ship clicks, and what stops them.
	allowBatches  = `grant insert on click_batches to deeplink_edge`
	refuseBatches = `revoke insert on click_batches from deeplink_edge`
)

// testClicks is a fleet with links that are clicked.
type testClicks struct {
	t     *testing.T
	fleet *fleet.Fleet
	owner *pgx.Conn
	api   *reader
	paths []string
	ids   map[string]string
}

func newTestClicks(t *testing.T, edges, links int, settings ...string) *testClicks {
	t.Helper()
	f := testfleet.Start(t, 1, edges, settings...)
	c := &testClicks{t: t, fleet: f, owner: testkit.Connect(t, f.Owner)}
	c.api = &reader{from: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1), controls: []string{f.Controls[0].Addr}}
	var err error
	if c.api.organization, err = fleet.NewOrganization(t.Context(), f.OperatorCommand); err == nil {
		c.ids, err = makeLinks(t.Context(), c.owner, c.api.organization.OrgKey, links)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.paths = slices.Sorted(maps.Keys(c.ids))
	return c
}

func (c *testClicks) exec(sql string) {
	c.t.Helper()
	if _, err := c.owner.Exec(context.Background(), sql); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// click sends n requests for links in turn over several connections, pipelined, and fails unless each has the response of a link.
func (c *testClicks) click(addr string, n int, paths ...string) {
	c.t.Helper()
	const connections, pipelined = 8, 50
	var wait sync.WaitGroup
	var left, answered atomic.Int64
	left.Store(int64(n))
	for range connections {
		wait.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				c.t.Error(err)
				return
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			for {
				from := left.Add(-pipelined) + pipelined
				if from <= 0 {
					return
				}
				var requests strings.Builder
				for i := max(0, from-pipelined); i < from; i++ {
					// Many clients: the edge limits the rate of each address.
					fmt.Fprintf(&requests, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: %s\r\nX-Forwarded-For: 10.%d.%d.%d\r\n%s\r\n",
						paths[i%int64(len(paths))], browser, i>>16&255, i>>8&255, i&255, headers)
				}
				if _, err := io.WriteString(conn, requests.String()); err != nil {
					c.t.Error(err)
					return
				}
				for i := max(0, from-pipelined); i < from; i++ {
					response, err := http.ReadResponse(in, nil)
					if err == nil {
						_, err = io.Copy(io.Discard, response.Body)
					}
					if err != nil || response.StatusCode != http.StatusFound && response.StatusCode != http.StatusGone {
						c.t.Errorf("%v: %v, expected the response of a link", response, err)
						return
					}
					answered.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if c.t.Failed() || answered.Load() != int64(n) {
		c.t.Fatalf("%d of %d requests have the response of a link", answered.Load(), n)
	}
}

// raw reads a page of raw clicks from before a time.
func (c *testClicks) raw(to time.Time) page[rawClick] {
	c.t.Helper()
	query := c.api.everything(to)
	query.Set("to", to.UTC().Format("2006-01-02T15:04:05.000Z"))
	p, err := read[rawClick](c.t.Context(), c.api, rawPath, query)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// eventually waits for a condition on the raw clicks from before a time.
func (c *testClicks) eventually(what string, to time.Time, condition func(p page[rawClick]) bool) page[rawClick] {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		p := c.raw(to)
		if condition(p) {
			return p
		}
		if time.Since(began) > bound {
			c.t.Fatalf("%s: not within %v: asOf %v, complete %v, missing %+v", what, bound, p.AsOf, p.Complete, p.Missing)
		}
	}
}

// totals are the figures of a link, of the organization if id is empty.
func (c *testClicks) totals(id string) page[linkFigure] {
	c.t.Helper()
	query := c.api.everything(c.week())
	if id != "" {
		query.Set("linkId", id)
	}
	return c.figures(query)
}

// byOS are the figures of the organization by operating system, which are kept per day and without outcome.
func (c *testClicks) byOS() page[linkFigure] {
	c.t.Helper()
	query := c.api.everything(c.week(), "groupBy", "os")
	query.Del("outcome")
	return c.figures(query)
}

// week is a UTC midnight after the test.
func (c *testClicks) week() time.Time { return c.api.from.AddDate(0, 0, 7) }

func (c *testClicks) figures(query url.Values) page[linkFigure] {
	c.t.Helper()
	p, err := read[linkFigure](c.t.Context(), c.api, figuresPath, query)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// start starts an edge with a directory of clicks, under a slot of its own.
func (c *testClicks) start(slot, dir string, settings ...string) *stack.Node {
	c.t.Helper()
	addrs, err := fleet.FreeAddrs(1)
	if err != nil {
		c.t.Fatal(err)
	}
	node, err := c.fleet.StartEdge(c.t.Context(), addrs[0], append(append(slices.Clone(c.fleet.EdgeSettings), "EDGE_SLOT="+slot, "EDGE_CLICKS_DIR="+dir), settings...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = node.Kill() })
	return node
}

func (c *testClicks) kill(node *stack.Node) {
	c.t.Helper()
	if err := node.Kill(); err != nil {
		c.t.Fatal(err)
	}
}

func stateOf(p page[rawClick], slot string) string {
	for _, m := range p.Missing {
		if m.Slot == slot {
			return m.State
		}
	}
	return ""
}

// TestDirectoryOfADeadEdgeReturnsOnAnotherEdge kills an edge with clicks that are not shipped. Its directory returns on another edge: once in
// time, and once after an operator has given it up.
func TestDirectoryOfADeadEdgeReturnsOnAnotherEdge(t *testing.T) {
	testkit.Prove(t)
	c := newTestClicks(t, 1, 2)
	dir := filepath.Join(t.TempDir(), "clicks")
	slots := []string{"first", "second", "third"}
	dead := c.start(slots[0], dir)
	for i, forgotten := range []bool{false, true} {
		const n = 500
		c.exec(refuseBatches)
		began := time.Now()
		c.click(dead.Addr, n, c.paths[i])
		c.kill(dead)
		to := time.Now().Add(time.Second)
		waits := c.eventually("waiting", to, func(p page[rawClick]) bool { return stateOf(p, slots[i]) == "waiting" })
		c.exec(allowBatches)
		if waits.Complete || waits.AsOf.After(began.Add(time.Second)) {
			t.Errorf("while the directory is away: asOf %v, complete %v; the first click was at %v", waits.AsOf, waits.Complete, began)
		}
		if later := c.raw(to); later.AsOf.After(waits.AsOf) {
			t.Errorf("asOf advanced from %v to %v", waits.AsOf, later.AsOf)
		}
		late := int64(0)
		if forgotten {
			late = n
			if out, err := c.fleet.OperatorCommand(t.Context(), "clicks", "forget", slots[i]); err != nil {
				t.Fatal(err, string(out))
			}
			p := c.eventually("forgotten", to, func(p page[rawClick]) bool { return p.Complete })
			if state := stateOf(p, slots[i]); state != "forgotten" {
				t.Errorf("the log is %q, expected forgotten", state)
			}
			if got := c.totals(c.ids[c.paths[i]]); got.Totals.Clicks != 0 {
				t.Errorf("%d clicks, expected none before the directory returns", got.Totals.Clicks)
			}
		}
		dead = c.start(slots[i+1], dir)
		p := c.eventually("complete", to, func(p page[rawClick]) bool {
			return p.Complete && stateOf(p, slots[i]) == "" && c.totals(c.ids[c.paths[i]]).Totals.Clicks > 0
		})
		if got := c.totals(c.ids[c.paths[i]]).Totals; got.Clicks != n || got.LateClicks != late || got.WithoutDetail != 0 {
			t.Errorf("forgotten %v: %d clicks, %d late; expected %d, %d late (missing %v)", forgotten, got.Clicks, got.LateClicks, n, late, p.Missing)
		}
	}
}

// TestFullLogRespondsToEveryRequestAndKeepsTotalsExact gives an edge the least space, and lets it ship nothing. The edge is killed while its log
// is full.
func TestFullLogRespondsToEveryRequestAndKeepsTotalsExact(t *testing.T) {
	testkit.Prove(t)
	c := newTestClicks(t, 1, 20)
	dir := filepath.Join(t.TempDir(), "clicks")
	edge := c.start("full", dir, "EDGE_CLICKS_BYTES=16777216")
	c.exec(refuseBatches)
	const n = 300_000 // the log has space for about 210,000
	c.click(edge.Addr, n, c.paths...)
	metric := func(name string) float64 {
		t.Helper()
		value, err := fleet.Metric(t.Context(), edge.Admin, "deeplink_edge_clicks_"+name)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	without := int64(metric("unrecorded_total"))
	if lost := metric("lost_total"); without == 0 || lost != 0 {
		t.Fatalf("%d clicks have no details, %v are lost", without, lost)
	}
	c.kill(edge)
	c.exec(allowBatches)
	edge = c.start("full", dir, "EDGE_CLICKS_BYTES=16777216")
	to := time.Now()
	c.eventually("all clicks", to, func(p page[rawClick]) bool { return p.Complete })
	c.click(edge.Addr, 100, c.paths...)
	to = time.Now()
	c.eventually("more clicks", to, func(p page[rawClick]) bool { return p.Complete })
	got := c.totals("")
	if got.Totals.Clicks != n+100 || got.Totals.WithoutDetail != without || got.Totals.LateClicks != 0 {
		t.Errorf("%+v, expected %d clicks, %d of them without details", got.Totals, n+100, without)
	}
	unrecorded := int64(0)
	for _, row := range c.byOS().Data {
		if row.Key != nil && *row.Key == "(unrecorded)" {
			unrecorded = row.Clicks
		}
	}
	if unrecorded != without {
		t.Errorf("%d clicks are (unrecorded), expected %d", unrecorded, without)
	}
	for _, path := range c.paths {
		if clicks := c.totals(c.ids[path]).Totals.Clicks; clicks != (n+100)/int64(len(c.paths)) {
			t.Errorf("%s has %d clicks, expected %d", path, clicks, (n+100)/len(c.paths))
		}
	}
	if absent := c.raw(to).Missing; slices.ContainsFunc(absent, func(m missing) bool { return m.State == "lost" }) {
		t.Errorf("missing: %+v, expected that nothing is lost", absent)
	}
}
