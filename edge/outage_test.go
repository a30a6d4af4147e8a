package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"deeplink/shared/testkit"
)

func TestEdgeWithoutPostgresServesCachedLinksAnd503Otherwise(t *testing.T) {
	t.Parallel()
	server := testkit.NewPostgres(t)
	e := startEdgeOn(t, server.Database, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.link(organization, "known", map[string]any{"fallback_url": "https://shop.example.com/"})
	r.link(organization, "unknown", map[string]any{"fallback_url": "https://shop.example.com/"})
	e.warm(t, "/abcd/known")
	if err := server.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if a := e.get(t, "/abcd/known"); a.status != 302 {
			t.Fatalf("a known link: %d %s, expected 302", a.status, a.body)
		}
		a := e.get(t, "/abcd/unknown/data")
		if a.status != 503 || a.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Fatalf("an unknown link: %d %s, expected 503", a.status, a.body)
		}
		checkEnvelope(t, a, "/abcd/unknown/data")
		checkHeaders(t, a)
		time.Sleep(100 * time.Millisecond) // past the lease, into the time of stale answers
	}
	if err := server.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	until(t, "the edge serves uncached links again", func() bool { return e.get(t, "/abcd/unknown").status == 302 })
}

// warm requests a path until it is cached and no pending change can void the entry.
func (e *testEdge) warm(t *testing.T, path string) {
	t.Helper()
	until(t, "the edge has applied every change", func() (applied bool) {
		if err := e.owner.QueryRow(t.Context(), `select coalesce(bool_and(pg_visible_in_snapshot(c.xid, e.applied)), false) from changes c, edges e`).Scan(&applied); err != nil {
			t.Fatal(err)
		}
		return applied
	})
	until(t, path+" is in memory", func() bool {
		before := e.metrics(t)["deeplink_edge_loads_total"]
		if a := e.get(t, path); a.status != 302 {
			t.Fatalf("%s: status %d", path, a.status)
		}
		return e.metrics(t)["deeplink_edge_loads_total"] == before
	})
}

func TestFailedStatementIs500AndLoggedOnce(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.exec(`revoke select on app_configs from deeplink_edge`)
	a := e.get(t, "/abcd/x?secret=1", "X-Request-Id: find-me", "Authorization: secret")
	if a.status != 500 || strings.Contains(a.body, "permission") || strings.Contains(a.body, "app_configs") {
		t.Errorf("%d %s, expected a 500 without the cause", a.status, a.body)
	}
	checkEnvelope(t, a, "/abcd/x")
	checkHeaders(t, a)
	log := e.log.String()
	if strings.Count(log, "find-me") != 1 || !strings.Contains(log, "permission denied") || strings.Contains(log, "secret") {
		t.Errorf("logged:\n%s\nexpected the cause, once, with the request id", log)
	}
	r.exec(`grant select on app_configs to deeplink_edge`)
}

// Without a hint from control, a poll brings changes to the edge.
func TestChangedRowsAreServedAfterAPoll(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.link(organization, "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	for _, step := range []struct {
		statement string
		status    int
	}{
		{`select 1`, 302},
		{`update links set is_active = false`, 410},
		{`update links set is_active = true`, 302},
		{`update organizations set suspended = true`, 410},
		{`update organizations set suspended = false`, 302},
		{`delete from links`, 404},
	} {
		r.exec(step.statement)
		until(t, fmt.Sprintf("%d after %s", step.status, step.statement), func() bool { return e.get(t, "/abcd/x").status == step.status })
	}
}
