package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// changesOrganizations has a request for each way in which the API writes data of an organization. %d differs from one request to the next.
var changesOrganizations = []struct{ name, method, path, body string }{
	{"create", "POST", "/links", `{"path":"/new"}`},
	{"update", "PATCH", "/links/{link}", `{"title":"%d"}`},
	{"delete", "DELETE", "/links/{link}", ``},
	{"app config", "PUT", "/app-config", `{"fallbackUrl":"https://example.com/%d"}`},
	{"regenerate key", "POST", "/api-keys/CLIENT/regenerate", ``},
	{"plan", "PUT", "/plan", `{"plan":"free"}`},
	{"add domain", "POST", "/domains", `{"host":"d%d.example.com"}`},
	{"verify domain", "POST", "/domains/{domain}/verify", ``},
	{"delete domain", "DELETE", "/domains/{domain}", ``},
}

// TestLockedOrganizationHoldsUpNoOtherTenant has more writers wait for the rows of one organization than there are connections. It does not
// depend on time: the rows stay locked until the other requests have completed.
func TestLockedOrganizationHoldsUpNoOtherTenant(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	provider := w.provider()
	const connections = 4
	p := provider.serve(withConnections(connections))
	for _, change := range changesOrganizations {
		t.Run(change.name, func(t *testing.T) {
			p := p.in(t)
			locked, other := w.Tenant(catalog.Scale), w.Tenant(catalog.Scale)
			domain, _, _, err := w.Store.AddDomain(context.Background(), testenv.Actor, locked.ID, store.Unconditional, strings.ReplaceAll(change.name, " ", "-")+".example.org", true)
			if err != nil {
				t.Fatal(err)
			}
			link := p.client(*locked.ServerKey).CreateLink(`{"path":"/a"}`)
			unlock := w.Hold(`
				select from organizations o join link_usage u on u.organization_id = o.id join domains d on d.organization_id = o.id
				where o.id = $1 for update`, locked.ID)
			defer unlock()

			portal := provider.as(p, locked, "owner")
			wait := p.Pending(2*connections, func(i int) reply {
				body := change.body
				if strings.Contains(body, "%d") {
					body = fmt.Sprintf(body, i)
				}
				path := strings.NewReplacer("{link}", link.ID, "{domain}", domain.ID).Replace(change.path)
				return portal.Do(change.method, "/portal"+path, body)
			})
			blocked := w.Blocked()
			p.works(provider, other)
			if r := p.client(*locked.ServerKey).Do("GET", "/links/"+link.ID, ""); r.Status != http.StatusOK {
				t.Errorf("a read of the locked organization: %s, expected 200", r)
			}
			w.StillBlocked(t, blocked)
			unlock()
			for _, r := range wait() {
				// A second delete of a link or a domain returns 404.
				if r.Status >= 300 && r.Status != http.StatusNotFound && r.Status != http.StatusServiceUnavailable {
					t.Errorf("%s of the locked organization, after the unlock: %s", change.name, r)
				}
			}
		})
	}
}

// works checks that a tenant can read, list and write, with keys and in the portal.
func (p *process) works(provider *provider, o store.CreatedOrganization) {
	p.T.Helper()
	server, portal := p.client(*o.ServerKey), provider.as(p, o, "owner")
	link := server.CreateLink(`{"path":"/other"}`)
	for _, step := range []struct {
		c                  *client
		method, path, body string
	}{
		{server, "GET", "/links/" + link.ID, ""},
		{server, "GET", "/links", ""},
		{server, "GET", "/links?isActive=true&search=o", ""},
		{server, "PATCH", "/links/" + link.ID, `{"title":"b"}`},
		{portal, "GET", "/portal/organization", ""},
		{portal, "GET", "/portal/audit-log", ""},
		{portal, "PUT", "/portal/app-config", `{"fallbackUrl":"https://example.com/other"}`},
		{server, "DELETE", "/links/" + link.ID, ""},
	} {
		if r := step.c.Do(step.method, step.path, step.body); r.Status != http.StatusOK {
			p.T.Errorf("%s %s of another tenant: %s, expected 200", step.method, step.path, r)
		}
	}
}

// The same for requests of phones.
func TestLockedDevicesHoldUpNoOtherPhone(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	const connections = 4 // the default of CONTROL_SDK_DATABASE_CONNECTIONS
	locks := []struct{ name, lock, device, user string }{
		// One device of several.
		{"one device", `select from devices where organization_id = $1 and id = 'phone-0' for update`, "phone-0", "user-%d"},
		{"all devices", `select from devices where organization_id = $1 for update`, "phone-%d", "user-%d"},
	}
	routes := []struct{ path, body string }{
		{"/sdk/session", `{"deviceId":"%s"}`},
		{"/sdk/identity", `{"deviceId":"%s","userId":"ann"}`},
		{"/sdk/identity/clear", `{"deviceId":"%s"}`},
		{"/sdk/events", `{"deviceId":"%s","sessionId":"{session}","events":[{"name":"open"}]}`},
	}
	for _, lock := range locks {
		for _, route := range routes {
			t.Run(lock.name+route.path, func(t *testing.T) {
				p := p.in(t)
				locked, other := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
				phones := p.client(*locked.ClientKey)
				sessions := make([]string, 2*connections)
				for i := range sessions {
					sessions[i] = sdk[sessionResponse](phones, "/sdk/session", fmt.Sprintf(`{"deviceId":"phone-%d"}`, i)).ID
				}
				unlock := w.Hold(lock.lock, locked.ID)
				defer unlock()
				wait := p.Pending(len(sessions), func(i int) reply {
					device, session := lock.device, sessions[0]
					if strings.Contains(device, "%d") {
						device, session = fmt.Sprintf(device, i), sessions[i]
					}
					return phones.Do("POST", route.path, strings.ReplaceAll(fmt.Sprintf(route.body, device), "{session}", session))
				})
				blocked := w.Blocked()
				reports := []*client{p.client(*other.ClientKey)}
				if lock.name == "one device" {
					reports = append(reports, phones) // its other devices
				}
				for _, c := range reports {
					for _, route := range routes {
						body := strings.ReplaceAll(fmt.Sprintf(route.body, "another"), "{session}", sessions[0])
						if r := c.Do("POST", route.path, body); r.Status != http.StatusOK {
							t.Errorf("POST %s of another device: %s, expected 200", route.path, r)
						}
					}
				}
				w.StillBlocked(t, blocked)
				unlock()
				for _, r := range wait() {
					if r.Status != http.StatusOK && r.Status != http.StatusServiceUnavailable {
						t.Errorf("POST %s of a locked device, after the unlock: %s", route.path, r)
					}
				}
			})
		}
	}
}
