package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// waitingWrites waits until n writes are in the share of their organization, with or without a connection.
func (p *process) waitingWrites(n int) {
	p.T.Helper()
	await(p.T, fmt.Sprintf("%d writes to wait", n), func() error {
		if waiting := p.Gauge(`deeplink_control_share_waiting{share="writes"}`); waiting < n {
			return fmt.Errorf("%d do", waiting)
		}
		return nil
	})
}

// TestWritesOutliveTheirClients closes the connections of 50 clients whose requests have been read and whose organization is locked. In the
// end all 50 links must exist, with their audit entries, and all must have been announced to the edges.
func TestWritesOutliveTheirClients(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	p := w.serve()
	c := p.client(*organization.ServerKey)
	w.DeafEdge(time.Minute, time.Hour)
	hints := w.AcknowledgeHints()
	unlock := w.Hold(`select from link_usage where organization_id = $1 for update`, organization.ID)
	const n, connections = 50, 2 // connections of the organization's share
	var cuts []func()
	for i := range n {
		cuts = append(cuts, c.SendAndHangUp("POST", "/links", fmt.Sprintf(`{"path":"/a","shortCode":"code-%d"}`, i)))
	}
	w.Blocked()
	p.waitingWrites(n - connections)
	for _, cut := range cuts {
		cut()
	}
	p.AwaitHungUp(n)
	unlock()
	await(t, "the links of all disconnected clients", func() error {
		var links, entries int
		err := w.Pool.QueryRow(context.Background(), `select (select count(*) from links where organization_id = $1),
			(select count(*) from audit_log where organization_id = $1 and action = 'link.create')`, organization.ID).Scan(&links, &entries)
		if err == nil && (links != n || entries != n) {
			err = fmt.Errorf("%d links and %d entries in the audit trail, expected %d", links, entries, n)
		}
		return err
	})
	for i := range n {
		select {
		case <-hints:
		case <-time.After(20 * time.Second):
			t.Fatalf("the hints had %d links, expected %d", i, n)
		}
	}
	await(t, "the ends of all requests", func() error {
		if under := p.Gauge("deeplink_control_requests_in_flight"); under > 0 {
			return fmt.Errorf("%d are in progress", under)
		}
		return nil
	})
}

// The same once for every route that writes.
func TestEveryKindOfWriteOutlivesItsClient(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	provider, dns := w.provider(), testenv.NewNameServer(t)
	p := provider.serve(withDNS(dns))
	type write struct{ pattern, path, body, done string }
	writes := []write{
		{"POST /links", "/links", `{"path":"/new"}`, `select count(*) = 2 from links where organization_id = $1`},
		{"PATCH /links/{id}", "/links/{link}", `{"title":"new"}`, `select exists (select from links where organization_id = $1 and title = 'new')`},
		{"DELETE /links/{id}", "/links/{link}", ``, `select not exists (select from links where organization_id = $1)`},
		{"PUT /links/external/{externalId}", "/links/external/new", `{"path":"/new"}`, `select exists (select from links where organization_id = $1 and external_id = 'new')`},
		{"DELETE /links/external/{externalId}", "/links/external/old", ``, `select not exists (select from links where organization_id = $1)`},
		{"POST /links/bulk", "/links/bulk", `{"operations":[{"op":"create","link":{"path":"/new"}}]}`, `select count(*) = 2 from links where organization_id = $1`},
		{"PUT /portal/plan", "/portal/plan", `{"plan":"free"}`, `select plan = 'free' from organizations where id = $1`},
		{"PUT /portal/app-config", "/portal/app-config", `{"fallbackUrl":"https://example.com/new"}`,
			`select fallback_url = 'https://example.com/new' from app_configs where organization_id = $1`},
		{"POST /portal/api-keys/{tier}/regenerate", "/portal/api-keys/CLIENT/regenerate", ``,
			`select exists (select from audit_log where organization_id = $1 and action = 'key.regenerate')`},
		{"POST /portal/domains", "/portal/domains", `{"host":"new.example.com"}`, `select exists (select from domains where organization_id = $1 and host = 'new.example.com')`},
		{"POST /portal/domains/{id}/verify", "/portal/domains/{pending}/verify", ``, `select not exists (select from domains where organization_id = $1 and status = 'pending')`},
		{"DELETE /portal/domains/{id}", "/portal/domains/{domain}", ``, `select count(*) = 1 from domains where organization_id = $1 and host is not null`},
		{"POST /sdk/session", "/sdk/session", `{"deviceId":"phone","model":"new"}`, `select exists (select from devices where organization_id = $1 and model = 'new')`},
		{"POST /sdk/identity", "/sdk/identity", `{"deviceId":"phone","userId":"new"}`, `select exists (select from devices where organization_id = $1 and user_id = 'new')`},
		{"POST /sdk/identity/clear", "/sdk/identity/clear", `{"deviceId":"phone"}`, `select not exists (select from devices where organization_id = $1 and user_id is not null)`},
		{"POST /sdk/events", "/sdk/events", `{"deviceId":"phone","sessionId":"{session}","events":[{"name":"new"}]}`,
			`select exists (select from events where organization_id = $1 and name = 'new')`},
	}
	// The portal serves links with the same handlers.
	for _, write := range writes[:6] {
		write.pattern, write.path = strings.Replace(write.pattern, " ", " /portal", 1), "/portal"+write.path
		writes = append(writes, write)
	}
	covered := []string{
		"POST /portal/billing/checkout", // writes nothing
		// A browser that disconnects gets no cookie, and the person signs in again.
		"PUT /portal/session/organization", "DELETE /portal/sessions/{id}", "POST /console/link", "POST /console/sign-out",
	}
	for _, write := range writes {
		covered = append(covered, write.pattern)
	}
	for _, route := range w.server().routes() {
		if pattern := route.Method + " " + route.Path; route.Method != http.MethodGet && !slices.Contains(covered, pattern) {
			t.Errorf("%s: no write of this test, expected one for each route that may write", pattern)
		}
	}
	for i, write := range writes {
		t.Run(write.pattern, func(t *testing.T) {
			p := p.in(t)
			organization := w.Tenant(catalog.Scale)
			link := p.client(*organization.ServerKey).CreateLink(`{"path":"/a","externalId":"old"}`)
			phone := p.client(*organization.ClientKey)
			session := sdk[sessionResponse](phone, "/sdk/session", `{"deviceId":"phone"}`)
			sdk[identityResponse](phone, "/sdk/identity", `{"deviceId":"phone","userId":"ann"}`)
			ids := []string{"{link}", link.ID, "{session}", session.ID}
			for _, name := range []string{"domain", "pending"} {
				host := fmt.Sprintf("%s-%d.example.org", name, i)
				domain, token, _, err := w.Store.AddDomain(context.Background(), testenv.Actor, organization.ID, store.Unconditional, host, name == "domain")
				if err != nil {
					t.Fatal(err)
				}
				proof := dnsverify.RecordOf(host, token)
				dns.Set(proof.Name, proof.Value)
				ids = append(ids, "{"+name+"}", domain.ID)
			}
			c := provider.as(p, organization, "owner")
			switch {
			case strings.HasPrefix(write.path, "/links"):
				c.Key = *organization.ServerKey
			case strings.HasPrefix(write.path, "/sdk"):
				c.Key = *organization.ClientKey
			}
			unlock := w.Hold(`
				select from organizations o join link_usage u on u.organization_id = o.id join devices v on v.organization_id = o.id
				where o.id = $1 for update`, organization.ID)
			names := strings.NewReplacer(ids...)
			method, _, _ := strings.Cut(write.pattern, " ")
			cut := c.SendAndHangUp(method, names.Replace(write.path), names.Replace(write.body))
			w.Blocked()
			cut()
			p.AwaitHungUp(1)
			unlock()
			await(t, "the write of the disconnected client", func() error {
				var done bool
				err := w.Pool.QueryRow(context.Background(), write.done, organization.ID).Scan(&done)
				if err == nil && !done {
					err = fmt.Errorf("not done: %s", write.done)
				}
				return err
			})
		})
	}
}

func TestReadEndsWithItsClient(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	c := p.client(*w.Organization(catalog.Scale).ServerKey)
	w.Hold(`lock table links in access exclusive mode`)
	cut := c.SendAndHangUp("GET", "/links", "")
	w.Blocked()
	cut()
	await(t, "the end of a read whose client has hung up", func() error {
		if under := p.Gauge("deeplink_control_requests_in_flight"); under > 0 {
			return fmt.Errorf("%d are in progress", under)
		}
		return nil
	})
}

// slowBody is a slow request body.
type slowBody struct{ strings.Reader }

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(3 * time.Second)
	return b.Reader.Read(p[:1])
}

func TestDeadlineOfAWriteBeginsOnceItIsRead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method string
		read   bool
		span   time.Duration
		ends   error // when its client disconnects
	}{
		{"GET", false, requestTimeout, context.Canceled},
		{"HEAD", false, requestTimeout, context.Canceled},
		{"DELETE", false, store.WriteTimeout, nil},
		{"POST", true, store.WriteTimeout, nil},
		{"PATCH", true, store.WriteTimeout, nil},
		{"PUT", true, store.WriteTimeout, nil},
	} {
		t.Run(test.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, hangUp := context.WithCancel(t.Context())
				request := httptest.NewRequestWithContext(client, test.method, "/", &slowBody{*strings.NewReader(`{}`)})
				request.Header.Set("Content-Type", decode.JSON)
				s := testServer(t.Output())
				handler := requestID(timeout(s.handle(func(x *requestState, r *http.Request) error {
					if test.read {
						if _, err := readBody(x, r, decode.JSON); err != nil {
							return err
						}
					}
					deadline, ok := r.Context().Deadline()
					if left := time.Until(deadline); !ok || left != test.span {
						t.Errorf("%v remain, expected %v", left, test.span)
					}
					hangUp()
					if err := r.Context().Err(); err != test.ends {
						t.Errorf("after the client disconnected: %v, expected %v", err, test.ends)
					}
					if test.ends == nil {
						<-r.Context().Done()
						if err := r.Context().Err(); err != context.DeadlineExceeded {
							t.Errorf("in the end: %v, expected that the deadline has passed", err)
						}
					}
					x.send(http.StatusOK, decode.JSON, nil)
					return nil
				})))
				handler.ServeHTTP(httptest.NewRecorder(), request)
			})
		})
	}
}
