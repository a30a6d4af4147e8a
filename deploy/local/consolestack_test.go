package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/deploy/stack"
	"deeplink/shared/devservers"
)

// testStack is a complete Deeplink: PostgreSQL, Redis, a control and an edge.
type testStack struct {
	*stack.Stack
	control, edge *stack.Node
	identityURL   string
	made          int // organizations
}

func openTestStack(t *testing.T) *testStack {
	t.Helper()
	dir, err := os.MkdirTemp("", "console")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// As root, PostgreSQL runs as another user, who must be able to reach the folder.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := stack.Build(t.Context(), bin); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background() // the stack outlives the test's context, for its cleanup
	edgeAddr, controlAddr, output := freeAddr(t), freeAddr(t), new(lockedBuffer)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(output.problems())
		}
	})
	s, err := stack.Open(ctx, stack.Options{Dir: dir, Bin: bin, LinkBase: "http://" + edgeAddr, Output: output})
	if err != nil {
		t.Fatal(err)
	}
	h := &testStack{Stack: s}
	t.Cleanup(func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	provider := startIdentity(t, controlAddr, filepath.Join(dir, "identity.pem"))
	h.identityURL = provider.issuer
	h.control, err = s.StartControl(ctx, controlAddr, append(provider.portalSettings(strings.Repeat("a1", 32)),
		// There is no DNS server; no test visits the billing page; the tabs are behind a proxy.
		"TRUSTED_PROXIES=127.0.0.1/32", "PORTAL_DNS=127.0.0.1:9", "BILLING_CHECKOUT_URL=https://billing.example/pay", "BILLING_SIGNING_KEY="+strings.Repeat("5c", 32))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNode(t, h.control) })
	if h.edge, err = s.StartEdge(ctx, edgeAddr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNode(t, h.edge) })
	return h
}

func stopNode(t *testing.T, n *stack.Node) {
	if err := n.Stop(context.Background(), stopTimeout); err != nil {
		t.Error(err)
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// lockedBuffer collects the logs of the programs.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// problems returns all log lines except access logs.
func (b *lockedBuffer) problems() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := slices.DeleteFunc(strings.Split(b.buffer.String(), "\n"), func(line string) bool { return strings.Contains(line, "msg=request ") })
	return strings.Join(lines, "\n")
}

// operate runs an operator's command.
func (h *testStack) operate(t *testing.T, arguments ...string) json.RawMessage {
	t.Helper()
	out, err := h.Operate(t.Context(), h.Control, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// exec runs a statement as the owner of the database.
func (h *testStack) exec(t *testing.T, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), h.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// tenant is an organization of a test.
type tenant struct{ key, externalID string }

// tenant creates an organization, with further flags of the operator's command.
func (h *testStack) tenant(t *testing.T, name, plan string, flags ...string) tenant {
	t.Helper()
	h.made++
	o := tenant{fmt.Sprintf("c%03d", h.made), fmt.Sprintf("org_%d", h.made)}
	h.operate(t, append([]string{"org", "create", "--name", name, "--org-key", o.key, "--external-id", o.externalID, "--plan", plan}, flags...)...)
	return o
}

// token returns a token of the development identity provider.
func (h *testStack) token(t *testing.T, o tenant, role string) string {
	t.Helper()
	response, err := http.Post(h.identityURL+"/token", "application/json",
		strings.NewReader(fmt.Sprintf(`{"org":%q,"role":%q,"ttlSeconds":1800}`, o.externalID, role)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct{ Token string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Token == "" {
		t.Fatalf("no token: %v", err)
	}
	return answer.Token
}

// ask sends a request with a session token and returns the status and the response.
func (h *testStack) ask(t *testing.T, method, path, token, body string) (status int, answer []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, h.control.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}

// makeLink creates a link without the console.
func (h *testStack) makeLink(t *testing.T, token, body string) {
	t.Helper()
	if status, answer := h.ask(t, "POST", "/portal/links", token, body); status != http.StatusCreated {
		t.Fatalf("POST /portal/links %s: %d %s", body, status, answer)
	}
}

// bound is the timeout of a response, long enough for a busy machine with few cores.
const bound = time.Minute

// click returns the status and the target of the edge's response to a short URL.
func (h *testStack) click(t *testing.T, o tenant, code string) (status int, location string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: bound}
	response, err := client.Get(h.edge.URL() + "/" + o.key + "/" + code)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode, response.Header.Get("Location")
}
