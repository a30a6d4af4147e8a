package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// plannedWrite is a request that writes what a plan allows, and a command after which it is refused.
type plannedWrite struct {
	name               string
	plan               catalog.Plan
	method, path, body string
	portal             bool
	// waitsFor locks the row that the request waits for.
	waitsFor string
	// downgrade are the arguments of control org, without the organization's key and what follows it; to is what follows it, if anything.
	downgrade, to string
	// byOwner has the owner set the plan in the portal of another control, in place of the command.
	byOwner bool
	status  int
	code    string
}

const (
	linkWriters         = `select from link_usage where organization_id = $1 for no key update`
	organizationWriters = `select from organizations o join domains d on d.organization_id = o.id where o.id = $1 for no key update`
)

var plannedWrites = []plannedWrite{
	{name: "quota", plan: catalog.Growth, method: "POST", path: "/portal/links", body: `{"path":"/new"}`, portal: true,
		waitsFor: linkWriters, downgrade: "plan", to: "free", status: 402, code: "QUOTA_EXCEEDED"},
	{name: "quota, set by the owner", plan: catalog.Growth, method: "POST", path: "/portal/links", body: `{"path":"/new"}`, portal: true,
		waitsFor: linkWriters, byOwner: true, status: 402, code: "QUOTA_EXCEEDED"},
	{name: "no plan", plan: catalog.Growth, method: "POST", path: "/portal/links", body: `{"path":"/new"}`, portal: true,
		waitsFor: linkWriters, downgrade: "plan", to: "none", status: 402, code: "PLAN_NOT_SELECTED"},
	{name: "create with a key", plan: catalog.Growth, method: "POST", path: "/links", body: `{"path":"/new"}`,
		waitsFor: linkWriters, downgrade: "plan", to: "starter", status: 403, code: "FEATURE_NOT_AVAILABLE"},
	{name: "update with a key", plan: catalog.Growth, method: "PATCH", path: "/links/{link}", body: `{"title":"new"}`,
		waitsFor: linkWriters, downgrade: "plan", to: "starter", status: 403, code: "FEATURE_NOT_AVAILABLE"},
	{name: "delete with a key", plan: catalog.Growth, method: "DELETE", path: "/links/{link}",
		waitsFor: linkWriters, downgrade: "plan", to: "starter", status: 403, code: "FEATURE_NOT_AVAILABLE"},
	{name: "create after a suspension", plan: catalog.Growth, method: "POST", path: "/links", body: `{"path":"/new"}`,
		waitsFor: linkWriters, downgrade: "suspend", status: 401},
	{name: "custom domain", plan: catalog.Scale, method: "POST", path: "/portal/domains", body: `{"host":"{host}.new.example"}`, portal: true,
		waitsFor: organizationWriters, downgrade: "plan", to: "growth", status: 403, code: "FEATURE_NOT_AVAILABLE"},
	{name: "verification of a domain", plan: catalog.Scale, method: "POST", path: "/portal/domains/{domain}/verify", portal: true,
		waitsFor: organizationWriters, downgrade: "plan", to: "growth", status: 403, code: "FEATURE_NOT_AVAILABLE"},
	{name: "regeneration of a key", plan: catalog.Growth, method: "POST", path: "/portal/api-keys/SERVER/regenerate", portal: true,
		waitsFor: organizationWriters, downgrade: "plan", to: "starter", status: 403, code: "FEATURE_NOT_AVAILABLE"},
}

// downgrades is a test environment in which writes that need a plan race with downgrades.
type downgrades struct {
	*testEnv
	provider       *provider
	control, other *process
	dns            *nameServer
}

// race is one write that needs a plan and the downgrade of its organization.
type race struct {
	downgrades
	plannedWrite
	o    store.CreatedOrganization
	send func() reply
}

func (d downgrades) race(t *testing.T, test plannedWrite, n int) race {
	t.Helper()
	r := race{downgrades: d, plannedWrite: test, o: d.Tenant(test.plan)}
	owner := d.provider.as(d.control, r.o, "owner")
	// As many as the plan free allows.
	d.Exec(`insert into links (id, organization_id, domain_id, short_code, path)
		select gen_random_uuid(), $1, (select id from domains where organization_id = $1 and host is null), 'l' || n, '/a' from generate_series(1, 50) n`, r.o.ID)
	var link string
	if err := d.Pool.QueryRow(t.Context(), `select id from links where organization_id = $1 and short_code = 'l1'`, r.o.ID).Scan(&link); err != nil {
		t.Fatal(err)
	}
	replace := []string{"{link}", link, "{host}", fmt.Sprintf("host-%d", n)}
	if strings.Contains(test.path, "{domain}") {
		domain := owner.addDomain(fmt.Sprintf("verify-%d.acme.example", n))
		d.dns.Set(domain.Verification.Name, domain.Verification.Value)
		replace = append(replace, "{domain}", domain.ID)
	}
	c := owner
	if !test.portal {
		c = d.control.client(d.APIKey(r.o.ID, apikey.Server))
	}
	replacer := strings.NewReplacer(replace...)
	r.send = func() reply { return c.Do(test.method, replacer.Replace(test.path), replacer.Replace(test.body)) }
	return r
}

// lock locks rows in a transaction of its own, until release is called.
func (r race) lock(t *testing.T, sql string) (release func()) {
	t.Helper()
	tx, err := r.Pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(context.Background(), sql, r.o.ID); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback(context.Background()) }
}

// lowered is a downgrade that was answered, with what the organization had then.
type lowered struct {
	failure string // of the downgrade; empty when it succeeded
	state   string
}

// lower has the organization downgraded and sends what came of it.
func (r race) lower() <-chan lowered {
	done := make(chan lowered, 1)
	owner := r.provider.as(r.other, r.o, "owner")
	go func() {
		var failure string
		if r.byOwner {
			if got := owner.Do("PUT", "/portal/plan", `{"plan":"free"}`); got.Status != http.StatusOK {
				failure = got.String()
			}
		} else {
			arguments := []string{"org", r.downgrade, r.o.OrgKey, "--database-url=" + r.DB.ControlURL}
			if r.to != "" {
				arguments = append(arguments, r.to)
			} else {
				arguments = append(arguments, "--redis-url="+r.Redis.URL(), "--link-base-url="+testLinkBase)
			}
			var stderr logBuffer
			if code := run(context.Background(), arguments, io.Discard, &stderr); code != 0 {
				failure = fmt.Sprintf("control %v ended with %d: %s", arguments, code, stderr.String())
			}
		}
		done <- lowered{failure, r.state()}
	}()
	return done
}

// state returns a digest of what plans restrict.
func (r race) state() (state string) {
	err := r.Pool.QueryRow(context.Background(), `select
		(select count(*) || ' links ' || md5(string_agg(l::text, ' ' order by id)) from links l where organization_id = $1) || ', ' ||
		(select count(*) || ' domains ' || md5(string_agg(d::text, ' ' order by id)) from domains d where organization_id = $1) || ', ' ||
		(select count(*) || ' keys ' || md5(coalesce(string_agg(k.id::text || coalesce(valid_until::text, ''), ' ' order by id), '')) from api_keys k
		 where organization_id = $1)`, r.o.ID).Scan(&state)
	if err != nil {
		return err.Error()
	}
	return state
}

// untilWaiting waits until n statements wait for locks, or until is not nil and the downgrade was answered.
func (r race) untilWaiting(t *testing.T, n int, answered <-chan lowered) {
	t.Helper()
	await(t, fmt.Sprintf("%d statements to wait for a lock", n), func() error {
		var waiting int
		err := r.Pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&waiting)
		if err == nil && waiting < n && len(answered) == 0 {
			err = fmt.Errorf("%d do", waiting)
		}
		return err
	})
}

// The write was let through by the plan and waits for its lock when the downgrade begins. When the downgrade is answered, the write has
// happened or never will.
func (r race) writeFirst(t *testing.T) {
	release := r.lock(t, r.waitsFor)
	replied := make(chan reply, 1)
	go func() { replied <- r.send() }()
	r.untilWaiting(t, 1, nil)
	downgraded := r.lower()
	r.untilWaiting(t, 2, downgraded)
	release()
	got, answer := <-replied, <-downgraded
	if answer.failure != "" {
		t.Error(answer.failure)
	}
	if after := r.state(); after != answer.state {
		t.Errorf("the write was answered with %s and committed after the downgrade had been answered:\n%s, expected as it was:\n%s", got, after, answer.state)
	}
	if got.Status >= 300 && got.Status != r.status {
		t.Errorf("the write was answered with %s, expected success or %d", got, r.status)
	}
}

// The write was let through by the plan from before the downgrade, which holds the locks that the write waits for.
func (r race) downgradeFirst(t *testing.T) {
	before := r.state()
	release := r.lock(t, r.waitsFor)
	downgraded := r.lower()
	r.untilWaiting(t, 1, downgraded)
	replied := make(chan reply, 1)
	go func() { replied <- r.send() }()
	if len(downgraded) == 0 {
		r.untilWaiting(t, 2, nil)
	}
	release()
	got, answer := <-replied, <-downgraded
	if answer.failure != "" {
		t.Error(answer.failure)
	}
	if got.Status != r.status || got.Code() != r.code {
		t.Errorf("the write was answered with %s, expected %d %s", got, r.status, r.code)
	}
	if after := r.state(); after != before {
		t.Errorf("the organization has %s, expected as it was: %s", after, before)
	}
}

func TestDowngradeHoldsOnceControlHasResponded(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	d := downgrades{testEnv: w, provider: w.provider(), dns: testenv.NewNameServer(t)}
	d.control, d.other = d.provider.serve("--portal-dns="+d.dns.Address), d.provider.serve()
	for n, test := range plannedWrites {
		t.Run(test.name+", write first", func(t *testing.T) { d.race(t, test, 2*n).writeFirst(t) })
		t.Run(test.name+", downgrade first", func(t *testing.T) { d.race(t, test, 2*n+1).downgradeFirst(t) })
	}
}
