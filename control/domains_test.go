package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// verdict is what a verification answers, as a reader of the JSON has it.
type verdict struct {
	ID, Host            string
	IsDefault, IsCustom bool
	Status              string
	CreatedAt           time.Time
	Verification        *verification
	Message             *string
}

// add makes a pending domain through the portal.
func (c *client) add(host string) verdict {
	c.t.Helper()
	r := c.do("POST", "/portal/domains", fmt.Sprintf(`{"host":%q}`, host))
	if r.status != http.StatusCreated {
		c.t.Fatalf("add %s: %s, expected 201", host, r)
	}
	return into[verdict](c.t, r)
}

func (c *client) verify(id string) (verdict, reply) {
	c.t.Helper()
	r := c.do("POST", "/portal/domains/"+id+"/verify", "")
	if r.status != http.StatusOK {
		return verdict{}, r
	}
	return into[verdict](c.t, r), r
}

func TestDomainIsVerifiedByItsRecordInDNS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, dns := w.provider(), newNameServer(t)
	o := w.tenant(catalog.Scale)
	c := p.as(p.serve("--portal-dns="+dns.address), o, "admin")

	d := c.add("Go.Acme.Example.")
	if d.Host != "go.acme.example" || d.Status != "pending" || !d.IsCustom || d.IsDefault || d.Verification.Type != "TXT" ||
		d.Verification.Name != "_deeplink.go.acme.example" || !strings.HasPrefix(d.Verification.Value, "deeplink-verification=") || len(d.Verification.Value) < 40 {
		t.Fatalf("added %+v, %+v", d, d.Verification)
	}
	record := d.Verification
	pending := func(when, expected string) {
		t.Helper()
		got, r := c.verify(d.ID)
		if got.Status != "pending" || got.Message == nil || !strings.Contains(*got.Message, expected) || r.header.Get(relay.Header) != "" || got.ID != d.ID {
			t.Errorf("%s: %s, expected 200, pending, because %q", when, r, expected)
		}
	}
	pending("no record", "no TXT record _deeplink.go.acme.example")
	dns.set(record.Name, "v=spf1 -all")
	pending("another record", "has another value")
	dns.set(record.Name, record.Value+"x", " "+record.Value, strings.ToLower(record.Value))
	pending("nearly the record", "has another value")
	dns.set("go.acme.example", record.Value)
	dns.set(record.Name)
	pending("at the wrong name", "no TXT record")
	dns.fail(dnsmessage.RCodeServerFailure, false)
	pending("a server that fails", "DNS gave no answer")
	dns.fail(dnsmessage.RCodeRefused, false)
	pending("a server that refuses", "DNS gave no answer")
	dns.fail(dnsmessage.RCodeSuccess, true)
	began := time.Now()
	pending("a server that is silent", "DNS gave no answer")
	if took := time.Since(began); took < lookupTimeout-100*time.Millisecond {
		t.Errorf("a silent server takes %v, expected %v at least", took, lookupTimeout)
	}
	dns.fail(dnsmessage.RCodeSuccess, false)

	// Among others, and so many that the answer comes over TCP.
	dns.set(record.Name, repeat("a", 200), repeat("b", 300), repeat("c", 100), record.Value)
	w.deafEdge(600*time.Millisecond, time.Hour)
	began = time.Now()
	got, r := c.verify(d.ID)
	if got.Status != "verified" || got.Message != nil || *got.Verification != *record || r.header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("with the record: %s after %v, expected verified, once the lease of an edge is over", r, time.Since(began))
	}
	dns.set(record.Name)
	began = time.Now()
	if got, r := c.verify(d.ID); got.Status != "verified" || got.Message != nil || r.header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("again, without the record: %s after %v, expected verified for good, and the wait of the first call", r, time.Since(began))
	}
	// The search list of a resolver, or the host itself, would have been asked by now.
	dns.mu.Lock()
	defer dns.mu.Unlock()
	for _, name := range dns.asked {
		if name != "_deeplink.go.acme.example." {
			t.Errorf("asked for %s", name)
		}
	}
}

func TestDomainsAreListedUsedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, dns := w.provider(), newNameServer(t)
	control := p.serve("--portal-dns=" + dns.address)
	o := w.tenant(catalog.Scale)
	c := p.as(control, o, "admin")
	list := func() []verdict {
		t.Helper()
		r := p.as(control, o, "member").do("GET", "/portal/domains", "")
		if r.status != http.StatusOK {
			t.Fatalf("%s, expected 200", r)
		}
		return into[struct{ Data []verdict }](t, r).Data
	}
	first := list()
	if len(first) != 1 || !first[0].IsDefault || first[0].Host != "go.example.com" || first[0].Status != "verified" || first[0].Verification != nil {
		t.Fatalf("at first: %+v, expected the default domain", first)
	}
	d := c.add("go.acme.example")
	all := list()
	if len(all) != 2 || !all[0].IsDefault || all[1].ID != d.ID || *all[1].Verification != *d.Verification {
		t.Errorf("%+v, expected the new domain with its record", all)
	}
	link := c.do("POST", "/portal/links", `{"path":"/a","shortCode":"sale","domainId":"`+d.ID+`"}`)
	if l := into[catalog.Link](t, link); l.URL != "https://go.acme.example/sale" {
		t.Errorf("%s, expected it on the domain", link)
	}
	if r := c.do("DELETE", "/portal/domains/"+d.ID, ""); r.status != http.StatusConflict || !strings.Contains(r.message(), "still has links") {
		t.Errorf("delete with a link: %s, expected 409", r)
	}
	if r := c.do("DELETE", "/portal/domains/"+first[0].ID, ""); r.status != http.StatusConflict {
		t.Errorf("delete the default domain: %s, expected 409", r)
	}
	if got, r := c.verify(first[0].ID); got.Status != "verified" || got.Message != nil {
		t.Errorf("verify the default domain: %s, expected that it is", r)
	}
	c.do("DELETE", "/portal/links/"+into[catalog.Link](t, link).ID, "")
	// A smaller plan keeps nobody from cleaning up.
	w.exec(`update organizations set plan = 'free' where id = $1`, o.ID)
	w.deafEdge(600*time.Millisecond, time.Hour)
	began := time.Now()
	if r := c.do("DELETE", "/portal/domains/"+strings.ToUpper(d.ID), ""); r.status != http.StatusOK || strings.TrimSpace(string(r.body)) != `{"id":"`+d.ID+`","deleted":true}` ||
		r.header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("delete: %s after %v, expected 200 once the lease of an edge is over", r, time.Since(began))
	}
	began = time.Now()
	if r := c.do("DELETE", "/portal/domains/"+d.ID, ""); r.status != http.StatusNotFound || r.message() != "Domain not found." ||
		r.header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("delete again: %s after %v, expected 404 after the wait of the first call", r, time.Since(began))
	}
	if all := list(); len(all) != 1 {
		t.Errorf("at last: %+v, expected the default domain", all)
	}
}

func TestDomainDeletedWhileItIsVerifiedIsGoneAtEveryEdge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, dns := w.provider(), newNameServer(t)
	c := p.as(p.serve("--portal-dns="+dns.address), w.tenant(catalog.Scale), "admin")
	d := c.add("go.acme.example")
	dns.set(d.Verification.Name, d.Verification.Value)
	dns.meanwhile(func() { w.exec(`delete from domains where id = $1`, d.ID) })
	w.deafEdge(600*time.Millisecond, time.Hour)
	began := time.Now()
	if _, r := c.verify(d.ID); r.status != http.StatusNotFound || r.header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("%s after %v, expected 404 once the lease of an edge is over", r, time.Since(began))
	}
}

func TestHostIsItsOwnersHoweverManyClaimIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, dns := w.provider(), newNameServer(t)
	control := p.serve("--portal-dns=" + dns.address)
	squatter, owner, late := p.as(control, w.tenant(catalog.Scale), "admin"), p.as(control, w.tenant(catalog.Scale), "admin"), p.as(control, w.tenant(catalog.Scale), "admin")
	const host = "go.acme.example"
	squatted, owned := squatter.add(host), owner.add(host)
	taken := owner.do("POST", "/portal/domains", `{"host":"`+host+`"}`)
	if taken.status != http.StatusConflict {
		t.Errorf("the same host again: %s, expected 409", taken)
	}
	dns.set(owned.Verification.Name, owned.Verification.Value)
	if got, r := squatter.verify(squatted.ID); got.Status != "pending" {
		t.Errorf("a claim with the record of another: %s, expected pending", r)
	}
	if got, r := owner.verify(owned.ID); got.Status != "verified" {
		t.Fatalf("the owner: %s, expected verified", r)
	}
	// Whoever comes later, even with a record, hears what the owner itself hears.
	dns.set(owned.Verification.Name, owned.Verification.Value, squatted.Verification.Value)
	_, refused := squatter.verify(squatted.ID)
	for name, r := range map[string]reply{"add": late.do("POST", "/portal/domains", `{"host":"`+strings.ToUpper(host)+`"}`), "verify": refused,
		"the shared host": late.do("POST", "/portal/domains", `{"host":"go.example.com"}`)} {
		if r.status != http.StatusConflict || r.message() != taken.message() {
			t.Errorf("%s: %s, expected 409 with the message %q", name, r, taken.message())
		}
	}
}

func TestHostsAreValidated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.provider()
	o := w.tenant(catalog.Scale)
	c := p.as(p.serve(), o, "admin")
	for _, host := range []string{"acme", "https://go.acme.example", "go.acme.example:443", "go.acme.example/x", "*.acme.example", "127.0.0.1", "1.2", "[::1]", "go..acme",
		"-go.acme.example", "go_x.acme.example", "gö.example", "gо.example", "go.acme\u202e.example", "go.acme.example ", "go.acme.example\u0000", "", repeat("a", 64) + ".example",
		repeat("a.", 127) + "example", "ｇｏ.example", "\u212aelvin.example"} {
		r := c.do("POST", "/portal/domains", `{"host":`+quoted(t, host)+`}`)
		if r.status != http.StatusBadRequest || r.fields() != "host" {
			t.Errorf("%q: %s, expected 400 with details of host", host, r)
		}
	}
	for body, fields := range map[string]string{`{}`: "host", `{"host":null}`: "host", `{"host":1}`: "host", `{"host":"a.example","status":"verified"}`: "status",
		`{"host":"a.example","host":"b.example"}`: "host", `[]`: "body"} {
		if r := c.do("POST", "/portal/domains", body); r.status != http.StatusBadRequest || r.fields() != fields {
			t.Errorf("%s: %s, expected 400 with details of %s", body, r, fields)
		}
	}
	w.exec(`insert into domains (id, organization_id, host, status) select gen_random_uuid(), $1, 'h' || n || '.acme.example', 'pending' from generate_series(1, $2::int) n`,
		o.ID, store.MaxDomains)
	if r := c.do("POST", "/portal/domains", `{"host":"xn--g-fka.example"}`); r.status != http.StatusPaymentRequired || r.code() != "QUOTA_EXCEEDED" || !strings.Contains(string(r.body), `"quota":"domains"`) {
		t.Errorf("one more than %d: %s, expected 402", store.MaxDomains, r)
	}
}
