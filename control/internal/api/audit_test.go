package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// audited is an entry of the audit trail, as a client reads it from the JSON.
type audited struct {
	ID, Action string
	At         time.Time
	Actor      struct {
		Type           string
		ID, DisplayKey *string
	}
	Target        struct{ Type, ID string }
	IP, RequestID *string
	Detail        json.RawMessage
}

type auditReply struct {
	Data               []audited
	Total, Page, Limit int
}

// audit returns the trail, newest first.
func (c *client) audit(query string) auditReply {
	c.T.Helper()
	r := c.Do("GET", "/portal/audit-log"+query, "")
	if r.Status != http.StatusOK {
		c.T.Fatalf("GET /portal/audit-log%s: %s, expected 200", query, r)
	}
	return testenv.DecodeReply[auditReply](c.T, r)
}

// TestEveryChangingRequestIsAuditedAndNoOtherIs sends an accepted and a rejected change to every route that changes data, with each kind of
// credential that the route accepts.
func TestEveryChangingRequestIsAuditedAndNoOtherIs(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, dns := w.provider(), testenv.NewNameServer(t)
	control := p.serve(withDNS(dns))
	o := w.Tenant(catalog.Scale)
	owner, server := p.as(control, o, "owner"), control.client(*o.ServerKey)
	owner.From, server.From = nil, nil

	var expected []string // oldest first
	secrets := []string{*o.ServerKey, *o.ClientKey}
	addressed := 0
	send := func(c *client, method, path, body string, status int, action string) reply {
		t.Helper()
		addressed++
		address, id := fmt.Sprintf("192.0.2.%d", addressed), fmt.Sprintf(`request "%d", <b>`, addressed)
		r := c.Do(method, path, body, "X-Forwarded-For", address, "X-Request-Id", id)
		if r.Status != status {
			t.Fatalf("%s %s %s: %s, expected %d", method, path, body, r, status)
		}
		if action != "" {
			who := "user user_1"
			if c == server {
				who = "key " + apikey.Display(server.Key)
			}
			expected = append(expected, fmt.Sprintf("%s by %s from %s in %s", action, who, address, id))
		}
		return r
	}
	linkChanges := func(c *client, prefix string) {
		t.Helper()
		link := testenv.DecodeReply[catalog.Link](t, send(c, "POST", prefix, `{"path":"/hidden-path","params":{"token":"hidden-param"}}`, 201, "link.create"))
		send(c, "POST", prefix, `{"path":""}`, 400, "")
		send(c, "POST", prefix, `{"path":"/a","shortCode":"`+link.ShortCode+`"}`, 409, "")
		send(c, "PATCH", prefix+"/"+link.ID, `{"fallbackUrl":"https://a.example/?hidden=1"}`, 200, "link.update")
		send(c, "PATCH", prefix+"/"+link.ID, `{}`, 200, "")
		send(c, "PATCH", prefix+"/"+link.ID, `{"domainId":"`+nowhere+`"}`, 404, "")
		send(c, "GET", prefix+"/"+link.ID, ``, 200, "")
		send(c, "DELETE", prefix+"/"+link.ID, ``, 200, "link.delete")
		send(c, "DELETE", prefix+"/"+link.ID, ``, 404, "")

		external := prefix + "/external/sku-1"
		send(c, "PUT", external, `{}`, 400, "")
		send(c, "PUT", external, `{"path":"/hidden-path"}`, 201, "link.create")
		send(c, "PUT", external, `{"path":"/hidden-path"}`, 200, "")
		send(c, "PUT", external, `{"title":"hidden"}`, 200, "link.update")
		send(c, "DELETE", external, ``, 200, "link.delete")
		send(c, "DELETE", external, ``, 404, "")
		send(c, "POST", prefix+"/bulk", `{"operations":[{"op":"upsert","externalId":"a","link":{"path":"/hidden"}},{"op":"create","link":{}}],"atomic":true}`, 400, "")
		send(c, "POST", prefix+"/bulk", `{"operations":[{"op":"upsert","externalId":"a","link":{"path":"/hidden"}},{"op":"update","externalId":"a","link":{}},
			{"op":"delete","externalId":"none"},{"op":"delete","externalId":"a"}]}`, 200, "link.create")
		created := expected[len(expected)-1] // one entry for each operation that changed something, all with the id of the request
		expected = append(expected, strings.Replace(created, "link.create", "link.delete", 1))
	}
	linkChanges(server, "/links")
	linkChanges(owner, "/portal/links")

	send(owner, "PUT", "/portal/app-config", `{"fallbackUrl":"https://b.example/?hidden=1"}`, 200, "appConfig.update")
	send(owner, "PUT", "/portal/app-config", `{"fallbackUrl":"https://b.example/?hidden=1"}`, 200, "")
	send(owner, "PUT", "/portal/app-config", `{"fallbackUrl":1}`, 400, "")
	secrets = append(secrets, testenv.DecodeReply[newKeyReply](t, send(owner, "POST", "/portal/api-keys/CLIENT/regenerate", `{"graceSeconds":60}`, 200, "key.regenerate")).RawKey)
	send(owner, "POST", "/portal/api-keys/BOTH/regenerate", ``, 400, "")
	d := testenv.DecodeReply[verdict](t, send(owner, "POST", "/portal/domains", `{"host":"go.acme.example"}`, 201, "domain.create"))
	secrets = append(secrets, d.Verification.Value)
	send(owner, "POST", "/portal/domains", `{"host":"go.acme.example"}`, 409, "")
	send(owner, "POST", "/portal/domains/"+d.ID+"/verify", ``, 200, "") // still pending
	dns.Set(d.Verification.Name, d.Verification.Value)
	send(owner, "POST", "/portal/domains/"+d.ID+"/verify", ``, 200, "domain.verify")
	send(owner, "POST", "/portal/domains/"+d.ID+"/verify", ``, 200, "")
	send(owner, "DELETE", "/portal/domains/"+d.ID, ``, 200, "domain.delete")
	send(owner, "DELETE", "/portal/domains/"+d.ID, ``, 404, "")
	send(owner, "PUT", "/portal/plan", `{"plan":"growth"}`, 422, "")
	send(owner, "PUT", "/portal/plan", `{"plan":"free"}`, 200, "plan.update")
	send(owner, "PUT", "/portal/plan", `{"plan":"free"}`, 200, "")

	trail := owner.audit("?limit=100")
	var got []string
	for _, e := range trail.Data {
		who := e.Actor.Type
		switch {
		case e.Actor.DisplayKey != nil && e.Actor.ID != nil:
			who += " " + *e.Actor.DisplayKey
		case e.Actor.ID != nil:
			who += " " + *e.Actor.ID
		}
		got = append([]string{fmt.Sprintf("%s by %s from %s in %s", e.Action, who, *e.IP, *e.RequestID)}, got...)
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("(-done +recorded):\n%s", diff)
	}
	// The test must cover every route that changes data.
	changing := map[string]bool{}
	for _, route := range testServer(new(logBuffer)).routes() {
		ours := strings.HasPrefix(route.Path, "/links") || strings.HasPrefix(route.Path, "/portal")
		signIn := strings.HasPrefix(route.Path, "/portal/session") // session_test.go has its entries
		if ours && route.Method != http.MethodGet && route.Path != billingPath && !signIn {
			changing[route.Method+" "+route.Path] = true
		}
	}
	if len(changing) != 18 {
		t.Errorf("%d routes change data, 18 are in this test: %v", len(changing), changing)
	}
	control.Stop()
	checkChangesLogged(t, control.Log.String(), o.ID, trail.Data)
	text, log := fmt.Sprint(string(jsonOf(t, trail))), control.Log.String()
	for _, secret := range append(secrets, "hidden", owner.Key) {
		if strings.Contains(text, secret) || strings.Contains(log, secret) {
			t.Errorf("%q is in the trail (%t) or the log", secret, strings.Contains(text, secret))
		}
	}
}

// checkChangesLogged expects one log line for each audit entry, in order, with its id, and no others.
func checkChangesLogged(t *testing.T, log, organization string, trail []audited) {
	t.Helper()
	var expected, got []string
	for _, e := range slices.Backward(trail) {
		by := "keyId"
		if e.Actor.Type == "user" {
			by = "subject"
		}
		expected = append(expected, fmt.Sprint(e.ID, e.Action, e.Target, organization, *e.RequestID, "192.0.2.0/24", by, *e.Actor.ID))
	}
	for line := range strings.Lines(log) {
		var l struct{ Msg, AuditID, Action, Target, TargetID, OrganizationID, RequestID, Network, KeyID, Subject string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if l.Msg != "change" {
			continue
		}
		by := "keyId"
		if l.Subject != "" {
			by = "subject"
		}
		target := struct{ Type, ID string }{l.Target, l.TargetID}
		got = append(got, fmt.Sprint(l.AuditID, l.Action, target, l.OrganizationID, l.RequestID, l.Network, by, l.KeyID+l.Subject))
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("lines of changes (-in the trail +logged):\n%s", diff)
	}
}

func jsonOf(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAuditTrailIsPaged(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	o := w.Tenant(catalog.Growth)
	c := p.as(p.serve(), o, "admin")
	if empty := strings.TrimSpace(string(c.Do("GET", "/portal/audit-log", "").Body)); empty != `{"data":[],"total":0,"page":1,"limit":20}` {
		t.Errorf("first page: %s", empty)
	}
	var ids []string // newest first
	for range 5 {
		ids = append([]string{testenv.DecodeReply[catalog.Link](t, c.Do("POST", "/portal/links", `{"path":"/a"}`)).ID}, ids...)
	}
	targets := func(query string) string {
		t.Helper()
		got := c.audit(query)
		var list []string
		for _, e := range got.Data {
			list = append(list, e.Target.ID)
		}
		return fmt.Sprint(got.Total, got.Page, got.Limit, list)
	}
	newest := c.audit("?limit=1").Data[0].At
	at := func(d time.Duration) string { return url.QueryEscape(newest.Add(d).Format(time.RFC3339Nano)) }
	for query, expected := range map[string]string{
		"":                        fmt.Sprint(5, 1, 20, ids),
		"?limit=2":                fmt.Sprint(5, 1, 2, ids[:2]),
		"?limit=2&page=3":         fmt.Sprint(5, 3, 2, ids[4:]),
		"?limit=2&page=4":         fmt.Sprint(5, 4, 2, []string(nil)),
		"?page=9007199254740991":  fmt.Sprint(5, 9007199254740991, 20, []string(nil)),
		"?until=" + at(time.Hour): fmt.Sprint(5, 1, 20, ids),
		"?since=" + at(time.Hour): fmt.Sprint(0, 1, 20, []string(nil)),
	} {
		if got := targets(query); got != expected {
			t.Errorf("%s: %s, expected %s", query, got, expected)
		}
	}
	for query, fields := range map[string]string{"?page=0": "page", "?limit=101": "limit", "?since=yesterday": "since", "?since=2026-01-01&until=x&limit=x": "limit,since,until",
		"?until=" + at(0) + "&until=" + at(0): "until"} {
		if r := c.Do("GET", "/portal/audit-log"+query, ""); r.Status != http.StatusBadRequest || r.Fields() != fields {
			t.Errorf("%s: %s, expected 400 with details of %s", query, r, fields)
		}
	}
}
