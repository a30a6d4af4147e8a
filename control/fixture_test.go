package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const testLinkBase = testenv.LinkBase

// testEnv is one test's database and Redis, and the controls and commands that use them.
type testEnv struct{ *testenv.Env }

func newTestEnv(t testing.TB) *testEnv { return &testEnv{testenv.New(t)} }

type (
	reply      = testenv.Reply
	logBuffer  = testenv.LogBuffer
	nameServer = testenv.NameServer
)

// client is a testenv.Client with the requests of these tests.
type client struct{ *testenv.Client }

// process is a control that serves, in the test's process or in one of its own.
type process struct{ *testenv.Control }

func (p *process) client(key string) *client  { return &client{p.Client(key)} }
func (p *process) visit(token string) *client { return &client{p.Visit(token)} }

func await(t testing.TB, what string, check func() error) {
	t.Helper()
	testenv.Await(t, what, check)
}

// serve runs control in this process, as an operator would start it, and waits until it is ready. It ends with the test.
func (w *testEnv) serve(flags ...string) *process {
	w.T.Helper()
	p := start(w.T, w.DB.ControlURL, w.Redis.URL(), flags...)
	p.AwaitReady()
	return p
}

// start is serve without waiting, for a database and a Redis that may be missing.
func start(t testing.TB, databaseURL, redisURL string, flags ...string) *process {
	t.Helper()
	api, admin := testenv.FreeAddress(t), testenv.FreeAddress(t)
	p := &testenv.Control{T: t, Base: "http://" + api, Admin: "http://" + admin, Log: new(logBuffer)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	arguments := append([]string{
		"--database-url=" + databaseURL, "--redis-url=" + redisURL, "--link-base-url=" + testLinkBase,
		"--control-addr=" + api, "--control-admin-addr=" + admin, "--control-drain=0s", "--control-canary=0s", "--log-format=json",
	}, flags...)
	go func() { ended <- run(ctx, arguments, io.Discard, p.Log) }()
	p.Stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if code := p.Stop(); code != 0 {
			t.Errorf("control ended with %d, expected 0", code)
		}
		p.Explain()
	})
	return &process{p}
}

// launch starts the program as a process of its own, and waits until it is ready. It ends with the test.
func (w *testEnv) launch(path string, settings ...string) (*process, *devservers.Program) {
	w.T.Helper()
	control, program := w.Launch(path, settings...)
	return &process{control}, program
}

// provider is an identity provider and the environment of the controls that trust it.
type provider struct {
	*testenv.Provider
	w *testEnv
}

func (w *testEnv) provider() *provider { return &provider{testenv.NewProvider(w.T), w} }

// serve starts a control that trusts the provider, and this machine as its proxy.
func (p *provider) serve(flags ...string) *process {
	p.w.T.Helper()
	return p.w.serve(append([]string{"--portal-jwks-url=" + p.URL, "--portal-issuer=" + testenv.Issuer, "--trusted-proxies=127.0.0.1/32"}, flags...)...)
}

// as returns a client of a control with a role in an organization.
func (p *provider) as(control *process, o store.CreatedOrganization, role string) *client {
	p.w.T.Helper()
	return control.visit(p.Token(*o.ExternalID, role))
}

// unknownID is the id of nothing.
const unknownID = "00000000-0000-7000-8000-000000000000"

// addDomain creates a pending domain through the portal.
func (c *client) addDomain(host string) (domain struct {
	ID           string
	Verification dnsverify.Record
}) {
	c.T.Helper()
	r := c.Do("POST", "/portal/domains", fmt.Sprintf(`{"host":%q}`, host))
	if err := json.Unmarshal(r.Body, &domain); err != nil || r.Status != http.StatusCreated {
		c.T.Fatalf("add %s: %s, expected 201", host, r)
	}
	return domain
}

// auditLog returns the audit trail of the organization, newest first.
func (c *client) auditLog() (trail struct {
	Data []struct {
		Action string
		Actor  struct {
			Type string
			ID   *string
		}
		IP, RequestID *string
	}
}) {
	c.T.Helper()
	r := c.Do("GET", "/portal/audit-log", "")
	if err := json.Unmarshal(r.Body, &trail); err != nil || r.Status != http.StatusOK {
		c.T.Fatalf("GET /portal/audit-log: %s, expected 200", r)
	}
	return trail
}
