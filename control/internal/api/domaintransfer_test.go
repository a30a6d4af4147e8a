package api

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/jobs"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// domain returns a domain as the list shows it.
func (c *client) domain(id string) verdict {
	c.T.Helper()
	for _, d := range testenv.DecodeReply[struct{ Data []verdict }](c.T, c.Do("GET", "/portal/domains", "")).Data {
		if d.ID == id {
			return d
		}
	}
	c.T.Fatalf("no domain %s", id)
	return verdict{}
}

func TestDomainMovesOnTheDateThatBothOrganizationsSee(t *testing.T) {
	t.Parallel()
	const host = "go.acme.example"
	w := newTestEnv(t)
	p, dns := w.provider(), testenv.NewNameServer(t)
	control := p.serve(withDNS(dns))
	owner, claimant := p.as(control, w.Tenant(catalog.Scale), "admin"), p.as(control, w.Tenant(catalog.Scale), "admin")
	pool, log := w.Open(w.DB.ControlURL), new(logBuffer)
	job := jobs.NewDomainTransfers(store.New(pool, testLinkBase), w.RunRelay(pool), dnsverify.NewResolver(dns.Address), jobs.NewMetrics(), slog.New(slog.NewJSONHandler(log, nil)))
	check := func() error {
		t.Helper()
		at, err := w.Store.Clock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return job.Check(t.Context(), store.HostCheck{Host: host, At: at})
	}
	owned := owner.add(host)
	dns.Set(owned.Verification.Name, owned.Verification.Value)
	if got, r := owner.verify(owned.ID); got.Status != "verified" {
		t.Fatalf("the owner: %s, expected verified", r)
	}
	claimed := claimant.add(host)
	if claimed.Status != "pending" || claimed.Transfer != nil || claimed.LostAt != nil {
		t.Errorf("a claim: %+v, expected a pending domain without a transfer", claimed)
	}

	// With both records the host stays. With neither, nothing is proved. If DNS fails, that does not prove that a record is missing.
	dns.Set(owned.Verification.Name, owned.Verification.Value, claimed.Verification.Value)
	if _, r := claimant.verify(claimed.ID); r.Status != http.StatusConflict {
		t.Errorf("with both records: %s, expected 409", r)
	}
	dns.Set(owned.Verification.Name)
	if got, r := claimant.verify(claimed.ID); got.Status != "pending" || got.Transfer != nil || !strings.Contains(*got.Message, "no TXT record") {
		t.Errorf("without a record: %s, expected no transfer", r)
	}
	dns.Set(owned.Verification.Name, claimed.Verification.Value)
	dns.Fail(dnsmessage.RCodeServerFailure, false)
	if got, r := claimant.verify(claimed.ID); got.Transfer != nil || !strings.Contains(*got.Message, "no answer") {
		t.Errorf("without a DNS answer: %s, expected no transfer", r)
	}
	dns.Fail(dnsmessage.RCodeSuccess, false)
	began := time.Now()
	started, r := claimant.verify(claimed.ID)
	if started.Status != "pending" || started.Transfer == nil || started.Transfer.Direction != "in" || r.Header.Get(relay.Header) != "" {
		t.Fatalf("with only its record: %s, expected a transfer", r)
	}
	date := started.Transfer.CompletesAt
	if wait := date.Sub(began); wait < 7*24*time.Hour-time.Minute || wait > 7*24*time.Hour+time.Minute || started.Transfer.StartedAt.Before(began.Add(-time.Minute)) {
		t.Errorf("%+v, expected it to complete after 7 days", started.Transfer)
	}
	if !strings.Contains(*started.Message, date.UTC().Format("2 January 2006")) {
		t.Errorf("%q, expected the date", *started.Message)
	}
	seen := owner.domain(owned.ID)
	if seen.Status != "verified" || seen.Transfer == nil || seen.Transfer.Direction != "out" || seen.Transfer.CompletesAt != date || claimant.domain(claimed.ID).Transfer.CompletesAt != date {
		t.Errorf("the owner sees %+v, expected the same date", seen)
	}
	if got, r := owner.verify(owned.ID); got.Status != "verified" || got.Message == nil || !strings.Contains(*got.Message, "Restore it before") || r.Header.Get(relay.Header) != "complete" {
		t.Errorf("the owner without its record: %s, expected a message that says what to do", r)
	}

	// The owner restores its record and requests a lookup.
	dns.Set(owned.Verification.Name, claimed.Verification.Value, owned.Verification.Value)
	if got, r := owner.verify(owned.ID); got.Status != "verified" || got.Message != nil || got.Transfer != nil {
		t.Errorf("the owner with its record: %s, expected the end of the transfer", r)
	}
	if seen := claimant.domain(claimed.ID); seen.Transfer != nil {
		t.Errorf("the claimant sees %+v, expected no transfer", seen)
	}

	// The same again, up to the end.
	dns.Set(owned.Verification.Name, claimed.Verification.Value)
	claimant.verify(claimed.ID)
	w.CompleteTransfersIn(time.Hour)
	if err := check(); err != nil || owner.domain(owned.ID).Transfer == nil {
		t.Errorf("an hour before the date: %v; expected the transfer to continue", err)
	}
	w.CompleteTransfersIn(-time.Second)
	dns.Fail(dnsmessage.RCodeServerFailure, false)
	if err := check(); err == nil || !strings.Contains(err.Error(), host) {
		t.Errorf("while DNS fails: %v, expected an error with the host", err)
	}
	if d := owner.domain(owned.ID); d.Status != "verified" || d.Transfer == nil {
		t.Errorf("while DNS fails: %+v, expected that the host stays and the transfer continues", d)
	}
	dns.Fail(dnsmessage.RCodeSuccess, false)
	w.DeafEdge(600*time.Millisecond, time.Hour)
	began = time.Now()
	if err := check(); err != nil {
		t.Errorf("on the date: %v", err)
	}
	if took := time.Since(began); took < 600*time.Millisecond || !strings.Contains(log.String(), `"propagation":"pending"`) {
		t.Errorf("the job took %v, expected it to wait for the lease of an edge: %s", took, log)
	}
	lost, got := owner.domain(owned.ID), claimant.domain(claimed.ID)
	if lost.Status != "pending" || lost.LostAt == nil || lost.Transfer != nil || got.Status != "verified" || got.LostAt != nil || got.Transfer != nil {
		t.Errorf("after the date: %+v and %+v, expected that the host has moved", lost, got)
	}
	// Back again, by a call of the former owner after its date: the response waits for the edges.
	dns.Set(owned.Verification.Name, owned.Verification.Value)
	owner.verify(owned.ID)
	w.CompleteTransfersIn(-time.Second)
	began = time.Now()
	if got, r := owner.verify(owned.ID); got.Status != "verified" || got.LostAt != nil || got.Message != nil || r.Header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("back: %s after %v, expected verified after the lease of an edge", r, time.Since(began))
	}
	for name, c := range map[string]*client{"owner": owner, "claimant": claimant} {
		var actions []string
		for _, e := range c.audit("?limit=100").Data {
			actions = append([]string{e.Action + " by " + e.Actor.Type}, actions...)
		}
		trail := strings.Join(actions, ", ")
		expected := map[string]string{
			"owner": "domain.create by user, domain.verify by user, domainTransfer.start by service, domainTransfer.cancel by user, domainTransfer.start by service, " +
				"domainTransfer.complete by service, domainTransfer.start by user, domainTransfer.complete by user",
			"claimant": "domain.create by user, domainTransfer.start by user, domainTransfer.cancel by service, domainTransfer.start by user, " +
				"domainTransfer.complete by service, domainTransfer.start by service, domainTransfer.complete by service",
		}[name]
		if trail != expected {
			t.Errorf("audit trail of the %s:\n%s\nexpected\n%s", name, trail, expected)
		}
	}
}
