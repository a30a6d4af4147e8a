package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

func TestOperatorRemovesADomain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Organization(catalog.Scale)
	add := w.command("domain", "add", o.OrgKey, "go.acme.example", "--verified")
	domain := testenv.DecodeReply[struct {
		catalog.Domain
		Verification dnsverify.Record
		Propagation  relay.Propagation
	}](t, reply{Body: []byte(add.stdout)}).Domain
	link, err := catalog.ReadLink([]byte(`{"path":"/a","domainId":"` + domain.ID + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	created, _, err := w.Store.CreateLink(t.Context(), testenv.Actor, o.ID, store.Unconditional, link)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.command("domain", "remove", o.OrgKey, "go.acme.example"); got.code != exitFailed || !strings.Contains(got.stderr, "still has links") || got.stdout != "" {
		t.Errorf("with a link: %+v, expected to hear of it", got)
	}
	if _, err := w.Store.DeleteLink(t.Context(), testenv.Actor, o.ID, store.Unconditional, created.ID); err != nil {
		t.Fatal(err)
	}
	w.DeafEdge(600*time.Millisecond, time.Hour)
	began := time.Now()
	got := w.command("domain", "remove", strings.ToUpper(o.OrgKey), "Go.Acme.Example.")
	expected := fmt.Sprintf(`{"id":"%s","host":"go.acme.example","deleted":true,"propagation":"pending"}`, domain.ID)
	if strings.Join(strings.Fields(got.stdout), "") != expected || got.code != 0 || time.Since(began) < 600*time.Millisecond {
		t.Errorf("%+v after %v, expected %s once the lease of an edge is over", got, time.Since(began), expected)
	}
	began = time.Now()
	if got := w.command("domain", "remove", o.OrgKey, "go.acme.example"); got.code != exitFailed || !strings.Contains(got.stderr, "go.acme.example") || !strings.Contains(got.stderr, "not found") ||
		time.Since(began) < 600*time.Millisecond {
		t.Errorf("again: %+v after %v, expected that it is not there after the wait of the first", got, time.Since(began))
	}
	for name, arguments := range map[string][]string{"zzzz": {"zzzz", "go.acme.example"}, "host": {o.OrgKey, "http://x"}, "go.example.com": {o.OrgKey, "go.example.com"}} {
		if got := w.command(append([]string{"domain", "remove"}, arguments...)...); got.code == 0 || !strings.Contains(got.stderr, name) {
			t.Errorf("%v: %+v, expected a failure that names %s", arguments, got, name)
		}
	}
	var by string
	if err := w.Pool.QueryRow(t.Context(), `select actor_type || ' ' || action from audit_log where target_id = $1 and action = 'domain.delete'`, domain.ID).Scan(&by); err != nil || by != "operator domain.delete" {
		t.Errorf("audit trail: %q, %v", by, err)
	}
}

func TestOperatorVerifiesADomainThatIsPending(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o, other := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	type added struct {
		catalog.Domain
		Verification dnsverify.Record
		Propagation  relay.Propagation
	}
	add := func(orgKey string, more ...string) (added, outcome) {
		t.Helper()
		got := w.command(append([]string{"domain", "add", orgKey, "go.acme.example"}, more...)...)
		if got.code != 0 {
			return added{}, got
		}
		return testenv.DecodeReply[added](t, reply{Body: []byte(got.stdout)}), got
	}
	pending, _ := add(o.OrgKey)
	verified, got := add(o.OrgKey, "--verified")
	if verified.ID != pending.ID || verified.Status != catalog.DomainVerified || verified.Verification != pending.Verification {
		t.Errorf("--verified for a pending domain: %+v\n%+v, expected domain %s to be verified", verified, got, pending.ID)
	}
	for _, arguments := range [][]string{nil, {"--verified"}} {
		if _, got := add(o.OrgKey, arguments...); got.code != exitFailed || !strings.Contains(got.stderr, "already used") {
			t.Errorf("add %v for a verified domain: %+v, expected that the host is already used", arguments, got)
		}
	}
	if _, got := add(other.OrgKey); got.code != 0 {
		t.Errorf("another organization's pending domain: %+v", got)
	}
	if _, got := add(other.OrgKey, "--verified"); got.code != exitFailed || !strings.Contains(got.stderr, "already used") {
		t.Errorf("--verified for a host that another organization has verified: %+v, expected that it is already used", got)
	}
	var actions string
	if err := w.Pool.QueryRow(t.Context(), `select string_agg(action, ' ' order by id) from audit_log where target_id = $1`, pending.ID).Scan(&actions); err != nil || actions != "domain.create domain.verify" {
		t.Errorf("audit trail: %q, %v", actions, err)
	}
}
