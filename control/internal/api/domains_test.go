package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// verdict is the response to a verification, as a client reads it from the JSON.
type verdict struct {
	ID, Host            string
	IsDefault, IsCustom bool
	Status              string
	CreatedAt           time.Time
	Verification        *dnsverify.Record
	Transfer            *domainTransfer
	LostAt              *time.Time
	Message             *string
}

// add creates a pending domain through the portal.
func (c *client) add(host string) verdict {
	c.T.Helper()
	r := c.Do("POST", "/portal/domains", fmt.Sprintf(`{"host":%q}`, host))
	if r.Status != http.StatusCreated {
		c.T.Fatalf("add %s: %s, expected 201", host, r)
	}
	return testenv.DecodeReply[verdict](c.T, r)
}

func (c *client) verify(id string) (verdict, reply) {
	c.T.Helper()
	r := c.Do("POST", "/portal/domains/"+id+"/verify", "")
	if r.Status != http.StatusOK {
		return verdict{}, r
	}
	return testenv.DecodeReply[verdict](c.T, r), r
}

func TestDomainIsVerifiedByItsRecordInDNS(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, dns := w.provider(), testenv.NewNameServer(t)
	o := w.Tenant(catalog.Scale)
	c := p.as(p.serve(withDNS(dns)), o, "admin")

	d := c.add("Go.Acme.Example.")
	if d.Host != "go.acme.example" || d.Status != "pending" || !d.IsCustom || d.IsDefault || d.Verification.Type != "TXT" ||
		d.Verification.Name != "_deeplink.go.acme.example" || !strings.HasPrefix(d.Verification.Value, "deeplink-verification=") || len(d.Verification.Value) < 40 {
		t.Fatalf("added %+v, %+v", d, d.Verification)
	}
	record := d.Verification
	pending := func(when, expected string) {
		t.Helper()
		got, r := c.verify(d.ID)
		if got.Status != "pending" || got.Message == nil || !strings.Contains(*got.Message, expected) || r.Header.Get(relay.Header) != "" || got.ID != d.ID {
			t.Errorf("%s: %s, expected 200, pending, because %q", when, r, expected)
		}
	}
	pending("no record", "no TXT record _deeplink.go.acme.example")
	dns.Set(record.Name, "v=spf1 -all")
	pending("another record", "has a different value")
	dns.Set(record.Name, record.Value+"x", " "+record.Value, strings.ToLower(record.Value))
	pending("a similar record", "has a different value")
	dns.Set("go.acme.example", record.Value)
	dns.Set(record.Name)
	pending("at the wrong name", "no TXT record")
	dns.Fail(dnsmessage.RCodeServerFailure, false)
	pending("a failing server", "DNS gave no answer")
	dns.Fail(dnsmessage.RCodeRefused, false)
	pending("a refusing server", "DNS gave no answer")
	dns.Fail(dnsmessage.RCodeSuccess, true)
	began := time.Now()
	pending("a silent server", "DNS gave no answer")
	if took := time.Since(began); took < dnsverify.LookupTimeout-100*time.Millisecond {
		t.Errorf("a silent server takes %v, expected at least %v", took, dnsverify.LookupTimeout)
	}
	dns.Fail(dnsmessage.RCodeSuccess, false)

	// Among so many other records that the answer requires TCP.
	dns.Set(record.Name, repeat("a", 200), repeat("b", 300), repeat("c", 100), record.Value)
	w.DeafEdge(600*time.Millisecond, time.Hour)
	began = time.Now()
	got, r := c.verify(d.ID)
	if got.Status != "verified" || got.Message != nil || *got.Verification != *record || r.Header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("with the record: %s after %v, expected verified after the lease of an edge", r, time.Since(began))
	}
	dns.Set(record.Name)
	began = time.Now()
	if got, r := c.verify(d.ID); got.Status != "verified" || got.Message != nil || r.Header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("again, without the record: %s after %v, expected still verified, after the same wait as the first call", r, time.Since(began))
	}
	// Lookups with the resolver's search list, or of the host itself, would have arrived by now.
	dns.Mu.Lock()
	defer dns.Mu.Unlock()
	for _, name := range dns.Asked {
		if name != "_deeplink.go.acme.example." {
			t.Errorf("lookup of %s", name)
		}
	}
}

func TestDomainsAreListedUsedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, dns := w.provider(), testenv.NewNameServer(t)
	control := p.serve(withDNS(dns))
	o := w.Tenant(catalog.Scale)
	c := p.as(control, o, "admin")
	list := func() []verdict {
		t.Helper()
		r := p.as(control, o, "member").Do("GET", "/portal/domains", "")
		if r.Status != http.StatusOK {
			t.Fatalf("%s, expected 200", r)
		}
		return testenv.DecodeReply[struct{ Data []verdict }](t, r).Data
	}
	first := list()
	if len(first) != 1 || !first[0].IsDefault || first[0].Host != "go.example.com" || first[0].Status != "verified" || first[0].Verification != nil {
		t.Fatalf("initially: %+v, expected the default domain", first)
	}
	d := c.add("go.acme.example")
	all := list()
	if len(all) != 2 || !all[0].IsDefault || all[1].ID != d.ID || *all[1].Verification != *d.Verification {
		t.Errorf("%+v, expected the new domain with its record", all)
	}
	link := c.Do("POST", "/portal/links", `{"path":"/a","shortCode":"sale","domainId":"`+d.ID+`"}`)
	if l := testenv.DecodeReply[catalog.Link](t, link); l.URL != "https://go.acme.example/sale" {
		t.Errorf("%s, expected the link on the domain", link)
	}
	if r := c.Do("DELETE", "/portal/domains/"+d.ID, ""); r.Status != http.StatusConflict || !strings.Contains(r.Message(), "still has links") {
		t.Errorf("delete with a link: %s, expected 409", r)
	}
	if r := c.Do("DELETE", "/portal/domains/"+first[0].ID, ""); r.Status != http.StatusConflict {
		t.Errorf("delete the default domain: %s, expected 409", r)
	}
	if got, r := c.verify(first[0].ID); got.Status != "verified" || got.Message != nil {
		t.Errorf("verify the default domain: %s, expected that it already is", r)
	}
	c.Do("DELETE", "/portal/links/"+testenv.DecodeReply[catalog.Link](t, link).ID, "")
	// An organization with a smaller plan can still clean up.
	w.Exec(`update organizations set plan = 'free' where id = $1`, o.ID)
	w.DeafEdge(600*time.Millisecond, time.Hour)
	began := time.Now()
	if r := c.Do("DELETE", "/portal/domains/"+strings.ToUpper(d.ID), ""); r.Status != http.StatusOK || strings.TrimSpace(string(r.Body)) != `{"id":"`+d.ID+`","deleted":true}` ||
		r.Header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("delete: %s after %v, expected 200 after the lease of an edge", r, time.Since(began))
	}
	began = time.Now()
	if r := c.Do("DELETE", "/portal/domains/"+d.ID, ""); r.Status != http.StatusNotFound || r.Message() != "Domain not found." ||
		r.Header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("delete again: %s after %v, expected 404 after the same wait as the first call", r, time.Since(began))
	}
	if all := list(); len(all) != 1 {
		t.Errorf("finally: %+v, expected the default domain", all)
	}
}

func TestDomainDeletedWhileItIsVerifiedIsGoneAtEveryEdge(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, dns := w.provider(), testenv.NewNameServer(t)
	c := p.as(p.serve(withDNS(dns)), w.Tenant(catalog.Scale), "admin")
	d := c.add("go.acme.example")
	dns.Set(d.Verification.Name, d.Verification.Value)
	dns.BeforeAnswer(func() { w.Exec(`delete from domains where id = $1`, d.ID) })
	w.DeafEdge(600*time.Millisecond, time.Hour)
	began := time.Now()
	if _, r := c.verify(d.ID); r.Status != http.StatusNotFound || r.Header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("%s after %v, expected 404 after the lease of an edge", r, time.Since(began))
	}
}

func TestHostIsItsOwnersHoweverManyClaimIt(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, dns := w.provider(), testenv.NewNameServer(t)
	control := p.serve(withDNS(dns))
	squatter, owner, late := p.as(control, w.Tenant(catalog.Scale), "admin"), p.as(control, w.Tenant(catalog.Scale), "admin"), p.as(control, w.Tenant(catalog.Scale), "admin")
	const host = "go.acme.example"
	squatted, owned := squatter.add(host), owner.add(host)
	taken := owner.Do("POST", "/portal/domains", `{"host":"`+host+`"}`)
	if taken.Status != http.StatusConflict {
		t.Errorf("the same host again: %s, expected 409", taken)
	}
	dns.Set(owned.Verification.Name, owned.Verification.Value)
	if got, r := squatter.verify(squatted.ID); got.Status != "pending" {
		t.Errorf("a claim with another organization's record: %s, expected pending", r)
	}
	if got, r := owner.verify(owned.ID); got.Status != "verified" {
		t.Fatalf("the owner: %s, expected verified", r)
	}
	dns.Set(owned.Verification.Name, owned.Verification.Value, squatted.Verification.Value)
	if _, r := squatter.verify(squatted.ID); r.Status != http.StatusConflict || !strings.Contains(r.Message(), "still in DNS") {
		t.Errorf("a claim with its record, while the owner's record is present: %s, expected 409", r)
	}
	if d := late.add(strings.ToUpper(host)); d.Status != "pending" || d.Transfer != nil {
		t.Errorf("add another organization's host: %+v, expected a pending domain", d)
	}
	if r := late.Do("POST", "/portal/domains", `{"host":"go.example.com"}`); r.Status != http.StatusConflict || r.Message() != taken.Message() {
		t.Errorf("the shared host: %s, expected 409 with the message %q", r, taken.Message())
	}
}

func TestHostOfEdgeExtraHostsCannotBeACustomDomain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, dns := w.provider(), testenv.NewNameServer(t)
	o := w.Tenant(catalog.Scale)
	const host = "old.example.com"
	// A claim from before the host was added to EDGE_EXTRA_HOSTS, with its record.
	claimed := p.as(p.serve(withDNS(dns)), o, "admin").add(host)
	dns.Set(claimed.Verification.Name, claimed.Verification.Value)

	c := p.as(p.serve(withDNS(dns), withExtraHosts("other.example.com", host)), o, "admin")
	if _, r := c.verify(claimed.ID); r.Status != http.StatusConflict {
		t.Errorf("verify an earlier claim: %s, expected 409", r)
	}
	shared := c.Do("POST", "/portal/domains", `{"host":"go.example.com"}`)
	late := p.as(&process{&testenv.Control{T: t, Base: c.Base}}, w.Tenant(catalog.Scale), "admin")
	for _, sent := range []string{host, "Old.Example.com.", "other.example.com"} {
		r := late.Do("POST", "/portal/domains", `{"host":"`+sent+`"}`)
		if r.Status != http.StatusConflict || r.Message() != shared.Message() {
			t.Errorf("add %s: %s, expected 409 with the message for the shared host, %q", sent, r, shared.Message())
		}
	}
	if d := late.add("sub." + host); d.Status != "pending" {
		t.Errorf("a host below one of EDGE_EXTRA_HOSTS: %+v, expected a pending domain", d)
	}
}

func TestHostsAreValidated(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	o := w.Tenant(catalog.Scale)
	c := p.as(p.serve(), o, "admin")
	for _, host := range []string{"acme", "https://go.acme.example", "go.acme.example:443", "go.acme.example/x", "*.acme.example", "127.0.0.1", "1.2", "[::1]", "go..acme",
		"-go.acme.example", "go_x.acme.example", "gö.example", "gо.example", "go.acme\u202e.example", "go.acme.example ", "go.acme.example\u0000", "", repeat("a", 64) + ".example",
		repeat("a.", 127) + "example", "ｇｏ.example", "\u212aelvin.example"} {
		r := c.Do("POST", "/portal/domains", `{"host":`+quoted(t, host)+`}`)
		if r.Status != http.StatusBadRequest || r.Fields() != "host" {
			t.Errorf("%q: %s, expected 400 with details of host", host, r)
		}
	}
	for body, fields := range map[string]string{`{}`: "host", `{"host":null}`: "host", `{"host":1}`: "host", `{"host":"a.example","status":"verified"}`: "status",
		`{"host":"a.example","host":"b.example"}`: "host", `[]`: "body"} {
		if r := c.Do("POST", "/portal/domains", body); r.Status != http.StatusBadRequest || r.Fields() != fields {
			t.Errorf("%s: %s, expected 400 with details of %s", body, r, fields)
		}
	}
	w.Exec(`insert into domains (id, organization_id, host, status) select gen_random_uuid(), $1, 'h' || n || '.acme.example', 'pending' from generate_series(1, $2::int) n`,
		o.ID, store.MaxDomains)
	if r := c.Do("POST", "/portal/domains", `{"host":"xn--g-fka.example"}`); r.Status != http.StatusPaymentRequired || r.Code() != "QUOTA_EXCEEDED" || !strings.Contains(string(r.Body), `"quota":"domains"`) {
		t.Errorf("one more domain than %d: %s, expected 402", store.MaxDomains, r)
	}
	if r := c.Do("POST", "/portal/domains", `{"host":"go.example.com"}`); r.Status != http.StatusPaymentRequired || r.Code() != "QUOTA_EXCEEDED" {
		t.Errorf("the shared host beyond the quota: %s, expected 402 before 409", r)
	}
}
