package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/deploy/stack"
	"deeplink/shared/testkit/chrome"
)

// strictProvider is the development provider without an overlap of refresh tokens. It can run a deed after it has processed a renewal and
// before it responds.
type strictProvider struct {
	*identity
	url     string
	renewed atomic.Pointer[func()]
	asked   atomic.Int64 // how often a person had to choose
}

func (s *strictProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/authorize" && r.Method == http.MethodGet && r.URL.Query().Get("prompt") != "none" {
		s.asked.Add(1)
	}
	if r.URL.Path != "/oauth/token" || r.ParseForm() != nil || r.PostForm.Get("grant_type") != "refresh_token" {
		s.handler().ServeHTTP(w, r)
		return
	}
	response := httptest.NewRecorder()
	s.handler().ServeHTTP(response, r)
	s.signIns.mu.Lock()
	delete(s.signIns.refresh, r.PostForm.Get("refresh_token"))
	s.signIns.mu.Unlock()
	if deed := s.renewed.Swap(nil); deed != nil {
		(*deed)()
	}
	for name, values := range response.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(response.Code)
	_, _ = w.Write(response.Body.Bytes()) // control may be killed
}

// testLostRenewal kills the control that renews a token after the provider has replaced the refresh token. "Continue" then needs no password, and
// what was typed stays.
func testLostRenewal(t *testing.T, h *testStack, p *tab) {
	addr := freeAddr(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	issuer := "http://" + ln.Addr().String()
	inner, err := newIdentity(issuer, addr, filepath.Join(t.TempDir(), "identity.pem"))
	if err != nil {
		t.Fatal(err)
	}
	provider := &strictProvider{identity: inner, url: issuer}
	server := &http.Server{Handler: provider}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln) // ends with Close
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	start := func() *stack.Node {
		node, err := h.StartControl(context.Background(), addr, append(inner.portalSettings(strings.Repeat("b2", 32)), "TRUSTED_PROXIES=127.0.0.1/32")...)
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	control := start()
	t.Cleanup(func() { stopNode(t, control) })
	o := h.tenant(t, "Renewal Ltd.", "scale", "--app-config", "demo")
	here := &testStack{Stack: h.Stack, control: control, edge: h.edge, identityURL: issuer}
	v := openTab(t, p.browser, here)
	v.signIn(here, o, "admin")
	v.strike("c", 0)
	v.Write(`dialog [name="path"]`, "/typed")
	v.Write(`dialog [name="title"]`, "Typed before")
	asked := provider.asked.Load()

	h.exec(t, `update console_sessions set token_ends_at = now() - interval '10 seconds' where issuer = '`+issuer+`'`)
	killed := make(chan error, 1)
	kill := func() { killed <- control.Kill() }
	provider.renewed.Store(&kill)
	v.Press(`dialog button[type="submit"]`)
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	v.Says("The service could not be reached.")
	v.Minds("ERR_")
	control = start()
	waitForLease(t, h, issuer)
	v.Press(`dialog button[type="submit"]`)
	v.Says("Continue with your identity provider", "What you have typed stays here.")
	v.Minds("status of 401")
	v.look("renew")
	v.Holds(`document.getElementById("sign-in-again").innerText === "Continue" && document.activeElement.closest("dialog.interruption") !== null`)
	continued, err := url.Parse(chrome.Evaluate[string](v.Tab, `document.getElementById("sign-in-again").href`))
	if err != nil || continued.Query().Get("prompt") != "none" || continued.Query().Get("next") != "/console/done" {
		t.Errorf("Continue leads to %v, %v", continued, err)
	}
	v.Press("#sign-in-again")
	v.Holds(`document.querySelector("dialog.interruption") === null`)
	v.Holds(`document.querySelector('dialog[open] [name="path"]').value === "/typed" && document.querySelector('dialog[open] [name="title"]').value === "Typed before"`)
	if again := provider.asked.Load(); again != asked {
		t.Errorf("the person had to choose %d times more", again-asked)
	}
	v.Press(`dialog button[type="submit"]`)
	v.closed()
	v.Says("The link is there.", "Typed before")
	status, answer := h.ask(t, "GET", "/portal/links", h.token(t, o, "owner"), "")
	var page struct{ Total int }
	if json.Unmarshal(answer, &page) != nil || page.Total != 1 {
		t.Errorf("%d %s, expected one link", status, answer)
	}
}

// waitForLease waits until the killed control's renewal is no longer taken to be under way.
func waitForLease(t *testing.T, h *testStack, issuer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), h.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for end := time.Now().Add(bound); ; time.Sleep(50 * time.Millisecond) {
		var over bool
		if err := conn.QueryRow(t.Context(), `select coalesce(bool_and(lease_until is null or lease_until < now()), false) from console_sessions where issuer = $1`, issuer).Scan(&over); err != nil {
			t.Fatal(err)
		}
		if over {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the lease of the killed control does not end")
		}
	}
}
