// Package upgrade is `prove drills upgrade`: it replaces every program of a fleet, with a migration between, behind nginx (front.go).
package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
	"deeplink/bench/prove/visitor"
	"deeplink/deploy/stack"
)

// Command replaces a running Deeplink with the next version and back, as deploy/README.md describes, behind nginx and under load.
type Command struct {
	From    string `help:"Git revision to upgrade from. Default: the working directory, without the additional migration of the next version."`
	Clients int    `help:"Number of clients that send clicks all the time." default:"16"`
}

// drain is the drain delay of all programs: longer than nginx needs to be updated (front.go).
const drain = 2 * time.Second

// Run prints a table. An exceeded bound is an error.
func (c Command) Run(ctx context.Context, out *proof.Output) error {
	findings, err := c.measure(ctx, out.Log)
	figures.Print(out, findings)
	return errors.Join(err, figures.Unkept(findings))
}

func (c Command) measure(ctx context.Context, log io.Writer) (_ []figures.Finding, err error) {
	programs, err := os.MkdirTemp("", "deeplink-upgrade-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(programs)
	before, after := filepath.Join(programs, "before"), filepath.Join(programs, "after")
	if err := errors.Join(fleet.BuildRevision(ctx, c.From, before), buildNext(ctx, after)); err != nil {
		return nil, err
	}
	f := &fleet.Fleet{
		EdgeSettings:    []string{"TRUSTED_PROXIES=127.0.0.1/32", "EDGE_DRAIN=" + drain.String()},
		ControlSettings: []string{"CONTROL_DRAIN=" + drain.String()},
	}
	err = f.Launch(ctx, before, 2, 2, log)
	defer func() { err = errors.Join(err, f.Close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	u := &upgrade{Fleet: f, clicks: visitor.NewVisits(), asked: visitor.NewVisits(), clients: c.Clients}
	if u.front, err = startFront(ctx, f.Dir, &fleet.LockedWriter{Out: log}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, u.front.close()) }()
	err = u.run(ctx, before, after)
	return u.findings(), err
}

// upgrade is a fleet behind a front while its programs are replaced.
type upgrade struct {
	*fleet.Fleet
	front    *front
	clients  int
	tenant   *fleet.Tenant
	replaced int

	clicks, asked          *visitor.Visits // requests for links whose delete had completed
	calls, refused, pended int             // of the API
	refusal                string
	underLocks             polls
}

func (u *upgrade) run(ctx context.Context, before, after string) (err error) {
	for _, n := range append(append([]*stack.Node{}, u.Edges...), u.Controls...) {
		u.front.know(n)
	}
	if err := u.front.follow(ctx, u.Edges, u.Controls); err != nil {
		return err
	}
	var keys []fleet.Link
	if u.tenant, keys, err = fleet.MakeLinks(ctx, u.Fleet, 50); err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	var busy sync.WaitGroup
	for range u.clients {
		busy.Go(func() { u.click(background, keys) })
	}
	busy.Go(func() { u.change(background) })
	defer busy.Wait()
	defer stop()
	fleet.Pause(ctx, time.Second)
	u.Use(after)
	if err := u.migrateUnderLocks(ctx); err != nil {
		return err
	}
	if err := u.replaceAll(ctx); err != nil {
		return err
	}
	// Back, without the migration.
	u.Use(before)
	err = u.replaceAll(ctx)
	fleet.Pause(ctx, time.Second)
	return err
}

// replaceAll replaces controls and edges one after the other. Each is ready and in nginx's configuration before the next.
func (u *upgrade) replaceAll(ctx context.Context) (err error) {
	for i, old := range u.Controls {
		if u.Controls[i], err = u.replace(ctx, old, func() (*stack.Node, error) { return u.LaunchControl(old.Addr, u.ControlSettings...) }); err != nil {
			return err
		}
	}
	for i, old := range u.Edges {
		if u.Edges[i], err = u.replace(ctx, old, func() (*stack.Node, error) { return u.LaunchEdge(old.Addr, u.EdgeSettings...) }); err != nil {
			return err
		}
	}
	return nil
}

func (u *upgrade) replace(ctx context.Context, old *stack.Node, launch func() (*stack.Node, error)) (*stack.Node, error) {
	// As deploy/README.md says: the drain and 18 s.
	if err := old.Stop(ctx, drain+18*time.Second); err != nil {
		return old, err
	}
	node, err := launch()
	if err != nil {
		return old, err
	}
	u.front.know(node)
	u.replaced++
	return node, errors.Join(node.Ready(ctx), u.front.lists(ctx, node.Addr))
}

// click clicks links in turn until ctx ends, with one connection per click, as visitors do.
func (u *upgrade) click(ctx context.Context, keys []fleet.Link) {
	for i := 0; fleet.Pause(ctx, 40*time.Millisecond); i++ {
		v := visitor.New(u.front.clicks)
		u.clicks.Click(v, keys[i%len(keys)].Path)
		v.HangUp()
	}
}

// change creates and deletes links through nginx until ctx ends, and requests each through nginx once its delete has completed.
func (u *upgrade) change(ctx context.Context) {
	for fleet.Pause(ctx, 20*time.Millisecond) {
		var link struct{ ID, ShortCode string }
		if _, ok := u.call(http.MethodPost, "/links", fleet.Fields{"path": "/x", "fallbackUrl": fleet.Target(0)}, http.StatusCreated, &link); !ok {
			continue
		}
		path := "/" + u.tenant.OrgKey + "/" + link.ShortCode
		for range len(u.Edges) + 1 {
			u.ask(u.clicks, path) // brings it into the memory of edges
		}
		propagation, ok := u.call(http.MethodDelete, "/links/"+link.ID, nil, http.StatusOK, &link)
		if !ok {
			continue
		}
		if propagation != "complete" {
			u.pended++
			continue
		}
		for range len(u.Edges) + 1 {
			u.ask(u.asked, path)
		}
	}
}

func (u *upgrade) ask(into *visitor.Visits, path string) {
	v := visitor.New(u.front.clicks)
	defer v.HangUp()
	into.Click(v, path)
}

// once keeps no connection: nginx closes idle ones on a reload, which would be a call without a response.
var once = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// call is one API call that must return the status.
func (u *upgrade) call(method, path string, body any, want int, into any) (propagation string, ok bool) {
	u.calls++
	status, propagation, err := u.send(method, path, body, into)
	if err != nil || status != want {
		u.refused++
		u.refusal = fmt.Sprintf("%s %s: %d, %v", method, path, status, err)
		return "", false
	}
	return propagation, true
}

func (u *upgrade) send(method, path string, body, into any) (status int, propagation string, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, "", err
	}
	if body == nil {
		text = nil
	}
	request, err := http.NewRequest(method, "http://"+u.front.api+path, bytes.NewReader(text))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+u.tenant.ServerKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := once.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(response.Body); err != nil {
		return response.StatusCode, "", err
	}
	_ = json.Unmarshal(text, into) // a body that is not JSON comes with an unexpected status
	return response.StatusCode, response.Header.Get("Deeplink-Propagation"), nil
}

func (u *upgrade) findings() []figures.Finding {
	all, others := u.clicks.Total(http.StatusFound)
	asked, stale := u.asked.Total(http.StatusNotFound)
	return []figures.Finding{
		figures.None(fmt.Sprintf("clicks without status 302 while %d programs were replaced (%v)", u.replaced, u.clicks), others, all),
		figures.None(fmt.Sprintf("stale or missing responses after a delete (%v)", u.asked), stale, asked),
		figures.None(fmt.Sprintf("API calls with an unexpected response (%d deletes pending) %s", u.pended, u.refusal), u.refused, u.calls),
		u.underLocks.finding(),
	}
}

// nextVersion is the number of the made-up migration.
const nextVersion = "90000"

// nextMigration is what a next version may bring: columns in the tables that edges read on every miss and every poll.
const nextMigration = `-- +goose Up
alter table links add column made_up text;
alter table domains add column made_up text not null default 'x';
alter table edges add column made_up integer not null default 1;
`

// buildNext builds the working directory with one more migration into dir.
func buildNext(ctx context.Context, dir string) error {
	root, err := fleet.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	migration, overlay := filepath.Join(dir, "migration.sql"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "migrations", nextVersion+"_made_up.sql"): migration}})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(migration, []byte(nextMigration), 0o644), os.WriteFile(overlay, replace, 0o644)); err != nil {
		return err
	}
	return stack.Build(ctx, dir, "-overlay", overlay)
}
