package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/edge/internal/wellknown"
	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

// operator runs commands of control on the servers of an edge.
type operator struct {
	t           *testing.T
	path        string
	environment []string
}

func newOperator(t *testing.T, database testkit.Database, e *testEdge) operator {
	t.Helper()
	path, err := devservers.Build(t.Context(), "deeplink/control")
	if err != nil {
		t.Fatal(err)
	}
	return operator{t, path, []string{
		"PATH=" + os.Getenv("PATH"), "DATABASE_URL=" + database.ControlURL, "REDIS_URL=" + string(e.settings.RedisURL), "LINK_BASE_URL=" + base,
	}}
}

// run runs a command, which must succeed and report complete propagation.
func (o operator) run(arguments ...string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, o.path, arguments...)
	var stdout, stderr bytes.Buffer
	command.Env, command.Stdout, command.Stderr = o.environment, &stdout, &stderr
	if err := command.Run(); err != nil {
		o.t.Fatalf("control %q: %v\n%s", arguments, err, &stderr)
	}
	var result struct{ Propagation string }
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil || result.Propagation != "complete" {
		o.t.Fatalf("control %q: %v\n%s", arguments, err, &stdout)
	}
}

// setApps sets an app config as [rows.apps] does. An empty name removes it.
func (o operator) setApps(orgKey, name string) {
	o.t.Helper()
	file := "none"
	if name != "" {
		file = filepath.Join(o.t.TempDir(), name+".json")
		config := fmt.Sprintf(`{"ios":{"teamId":"ABCDE12345","bundleId":"com.example.%[1]s"},"android":{"packageName":"com.example.%[1]s","sha256CertFingerprints":[%[2]q]}}`,
			name, fingerprintOne)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			o.t.Fatal(err)
		}
	}
	o.run("org", "app-config", orgKey, file)
}

// After a call that changed an app config has returned, the next request for a file gets the new one, even if the file was cached.
func TestAssociationFilesShowAnAppConfigAfterItsCallReturns(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	e := startEdgeOn(t, *database, func(c *options) { c.Lease = bound }) // how long each call waits for the edge at most
	o := newOperator(t, *database, e)
	check := func(host string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), e.associated(t, host)); diff != "" {
			t.Errorf("on %s (-expected +got):\n%s", host, diff)
		}
	}
	check("go.example.com")
	o.run("org", "create", "--name=One", "--org-key=abcd")
	o.run("org", "create", "--name=Two", "--org-key=wxyz", "--app-config=demo")
	check("go.example.com", "deeplink")
	if a := e.get(t, wellknown.ApplePath, "Host: links.one.example"); a.status != 404 {
		t.Errorf("a host before it is a domain: %d", a.status)
	}
	o.run("domain", "add", "abcd", "links.one.example", "--verified")
	check("links.one.example")
	for i := range 3 {
		name := fmt.Sprintf("a%d", i)
		o.setApps("abcd", name)
		check("go.example.com", name, "deeplink")
		check("links.one.example", name)
	}
	o.run("org", "suspend", "abcd")
	check("go.example.com", "a2", "deeplink")
	check("links.one.example", "a2")
	for range 2 {
		o.setApps("abcd", "")
		check("go.example.com", "deeplink")
		check("links.one.example")
	}
}

// A change of another organization's app config voids the cached files of the shared host, and nothing else.
func TestOtherAppConfigVoidsOnlyTheSharedHostsFiles(t *testing.T) {
	t.Parallel()
	// In one of several thousand edges, two of the tags share a stripe.
	if asked := askedForNothing(t); len(asked) > 0 {
		if again := askedForNothing(t); len(again) > 0 {
			t.Errorf("loaded unchanged data from Postgres: %q, and another edge %q", asked, again)
		}
	}
}

// askedForNothing returns what a new edge loaded from Postgres although it had not changed.
func askedForNothing(t *testing.T) (all []string) {
	t.Helper()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	one, two := r.organization("abcd"), r.organization("wxyz")
	r.apps(one, "one")
	r.apps(two, "two")
	r.domain(one, "links.one.example", "verified")
	r.domain(two, "links.two.example", "verified")
	r.link(one, "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	asked := []struct {
		host, path string
		again      bool
	}{
		{"go.example.com", "/abcd/x", false},
		{"go.example.com", "/wxyz/none", true}, // what depends on the organization itself
		{"links.one.example", wellknown.ApplePath, false},
		{"links.one.example", wellknown.GooglePath, false},
		{"links.two.example", wellknown.ApplePath, true},
		{"links.two.example", wellknown.GooglePath, true},
		{"unknown.example", wellknown.ApplePath, false},
		{"go.example.com", wellknown.ApplePath, true},
		{"go.example.com", wellknown.GooglePath, true},
	}
	loads := func(i int) bool {
		before := e.metrics(t)["deeplink_edge_loads_total"]
		e.get(t, asked[i].path, "Host: "+asked[i].host)
		return e.metrics(t)["deeplink_edge_loads_total"] != before
	}
	e.settle(t)
	for i := range asked {
		until(t, asked[i].path+" is in memory", func() bool { return !loads(i) })
	}
	r.apps(two, "three")
	e.settle(t)
	for i, ask := range asked {
		switch got := loads(i); {
		case got && !ask.again:
			all = append(all, ask.path+" on "+ask.host)
		case !got && ask.again:
			t.Errorf("%s on %s was not loaded from Postgres", ask.path, ask.host)
		}
	}
	if diff := cmp.Diff([]string{"one", "three"}, e.associated(t, "go.example.com")); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
	return all
}

// The circuit breaker for links must not refuse loads of files. A lock makes only the query for a link time out.
func TestFileIsLoadedWhileLinksCannotBe(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.apps(organization, "one")
	r.link(organization, "x", nil)
	e.settle(t)
	lock, err := e.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `lock table links in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if a := e.get(t, "/abcd/x"); a.status != 503 {
		t.Fatalf("a link: %d %s, expected 503", a.status, a.body)
	}
	before := e.metrics(t)["deeplink_edge_loads_total"]
	e.get(t, wellknown.ApplePath)
	if e.metrics(t)["deeplink_edge_loads_total"] == before {
		t.Error("the file was not loaded: the breaker of links is open")
	}
	if diff := cmp.Diff([]string{"one"}, e.associated(t, "go.example.com")); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}

func TestCachedFilesAreServedWhilePostgresIsDown(t *testing.T) {
	t.Parallel()
	server := testkit.NewPostgres(t)
	e := startEdgeOn(t, server.Database, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.apps(organization, "one")
	r.domain(organization, "links.one.example", "verified")
	e.settle(t)
	until(t, "the file is in memory", func() bool {
		before := e.metrics(t)["deeplink_edge_loads_total"]
		e.associated(t, "links.one.example")
		return e.metrics(t)["deeplink_edge_loads_total"] == before
	})
	if err := server.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one"}, e.associated(t, "links.one.example")); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
	a := e.get(t, wellknown.ApplePath)
	if a.status != 503 {
		t.Errorf("a file not in memory: %d %s, expected 503: no client may take it for an empty file", a.status, a.body)
	}
	checkEnvelope(t, a, wellknown.ApplePath)
}
