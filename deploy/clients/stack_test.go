package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/evanw/esbuild/pkg/api"
	"github.com/jackc/pgx/v5"

	"deeplink/deploy/stack"
	"deeplink/shared/devservers"
	"deeplink/shared/testkit/chrome"
)

const stopTimeout = 20 * time.Second

// testStack is a complete Deeplink: PostgreSQL, Redis, a control and an edge.
type testStack struct {
	*stack.Stack
	control, edge *stack.Node
	made          int // organizations
}

func openTestStack(t *testing.T) *testStack {
	t.Helper()
	dir, err := os.MkdirTemp("", "deeplink-clients-")
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
	edgeAddr := freeAddr(t)
	s, err := stack.Open(ctx, stack.Options{Dir: dir, Bin: bin, LinkBase: "http://" + edgeAddr, Output: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	h := &testStack{Stack: s}
	t.Cleanup(func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if h.control, err = s.StartControl(ctx, freeAddr(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.stopControl(t) })
	if h.edge, err = s.StartEdge(ctx, edgeAddr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNode(t, h.edge) })
	return h
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func stopNode(t *testing.T, n *stack.Node) {
	t.Helper()
	if err := n.Stop(context.Background(), stopTimeout); err != nil {
		t.Error(err)
	}
}

func (h *testStack) stopControl(t *testing.T) {
	t.Helper()
	stopNode(t, h.control)
}

// startControl starts control at its former address.
func (h *testStack) startControl(t *testing.T) {
	t.Helper()
	control, err := h.StartControl(context.Background(), h.control.Addr)
	if err != nil {
		t.Fatal(err)
	}
	h.control = control
}

// tenant is an organization.
type tenant struct{ ID, ServerKey, ClientKey string }

func (h *testStack) tenant(t *testing.T) (o tenant) {
	t.Helper()
	h.made++
	made, err := h.Operate(t.Context(), h.Control, "org", "create", "--name", "Shop", "--org-key", fmt.Sprintf("e%03d", h.made),
		"--plan", "scale", "--app-config", "demo")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(made, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// post sends a request to control and returns the status and the response.
func (h *testStack) post(t *testing.T, path, key, body string) (status int, answer []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.control.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	return send(t, request)
}

func send(t *testing.T, request *http.Request) (status int, answer []byte) {
	t.Helper()
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

type linkData struct{ ID, URL, Path string }

type session struct {
	SessionID, DeviceID string
	IsFirstSession      bool
	Link                *linkData
}

func (h *testStack) link(t *testing.T, o tenant, body string) (made linkData) {
	t.Helper()
	status, answer := h.post(t, "/links", o.ServerKey, body)
	if err := json.Unmarshal(answer, &made); err != nil || status != http.StatusCreated {
		t.Fatalf("POST /links %s: %d %s", body, status, answer)
	}
	return made
}

var copied = regexp.MustCompile(`data-copy="[^"]*\?mt=([^"]+)"`)

// clickToken clicks a short URL on a phone and returns the token that its page would copy to the clipboard.
func (h *testStack) clickToken(t *testing.T, shortURL string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shortURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("User-Agent", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1")
	status, page := send(t, request)
	token := copied.FindSubmatch(page)
	if token == nil {
		t.Fatalf("GET %s: %d without a token:\n%s", shortURL, status, page)
	}
	return string(token[1])
}

// event is a stored event; user and session may be empty.
type event struct{ Name, User, Session string }

// events returns the events of an organization, ordered by name.
func (h *testStack) events(t *testing.T, o tenant) []event {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), h.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, _ := conn.Query(t.Context(), `select name, coalesce(user_id, ''), coalesce(session_id::text, '') from events where organization_id = $1 order by name`, o.ID)
	stored, err := pgx.CollectRows(rows, pgx.RowToStructByPos[event])
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// app is the server of a web app that uses the client. It forwards requests below /sdk/ to control.
type app struct {
	*httptest.Server
	lose atomic.Bool // responses of control are dropped
	// controlURL is the address to which the page sends SDK requests; "": the app itself. It is set before a page is loaded.
	controlURL string

	mu         sync.Mutex
	roundTrips []roundTrip
}

// roundTrip is a request to control that the app forwarded, with the time of the response.
type roundTrip struct {
	path   string
	size   int
	status int
	answer []byte
	at     time.Time
}

func (h *testStack) app(t *testing.T, o tenant) *app {
	t.Helper()
	source, err := os.ReadFile("web/deeplink.ts")
	if err != nil {
		t.Fatal(err)
	}
	script := api.Transform(string(source), api.TransformOptions{Loader: api.LoaderTS, Format: api.FormatESModule, Target: api.ES2022})
	if len(script.Errors) > 0 {
		t.Fatalf("%+v", script.Errors)
	}
	a := new(app)
	routes := http.NewServeMux()
	serve := func(path, contentType, body string) {
		routes.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, body)
		})
	}
	serve("/deeplink.js", "text/javascript", string(script.Code))
	routes.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><title>Shop</title><link rel="icon" href="data:,"><script type="module">
		import { Deeplink } from "/deeplink.js"
		window.drops = []
		// Nothing is sent by itself before a test is over: what is sent early is sent for a reason.
		window.client = new Deeplink({ clientKey: %q, controlUrl: %q, edgeUrl: %q, appVersion: "1.2", batchDelay: 600000,
			onDrop: (entry, reason) => drops.push((entry.event?.name ?? entry.user) + ": " + reason) })
	</script>`, o.ClientKey, a.controlURL, h.edge.URL())
	})
	routes.Handle("/sdk/", a.passOn(t, h.control.URL()))
	a.Server = httptest.NewServer(routes)
	t.Cleanup(a.Close)
	return a
}

func (a *app) passOn(t *testing.T, to string) http.Handler {
	t.Helper()
	control, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(control)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the page is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		a.mu.Lock()
		a.roundTrips = append(a.roundTrips, roundTrip{r.URL.Path, len(body), answer.Code, answer.Body.Bytes(), time.Now()})
		a.mu.Unlock()
		if a.lose.Load() {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}

// asked returns the requests with a path, in the order of their responses.
func (a *app) asked(path string) (all []roundTrip) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.roundTrips {
		if e.path == path {
			all = append(all, e)
		}
	}
	return all
}

// visitor uses an app.
type visitor struct {
	*chrome.Tab
	t     *testing.T
	stack *testStack
	app   *app
}

// visitor opens the app of an organization in a new browser context.
func (h *testStack) visitor(t *testing.T, browser *chrome.Browser, o tenant) *visitor {
	t.Helper()
	return h.visit(t, browser, h.app(t, o), chrome.Options{})
}

// visit opens an app. Its page may send requests to the app and to the edge, and to the origins in options.
func (h *testStack) visit(t *testing.T, browser *chrome.Browser, a *app, options chrome.Options) *visitor {
	t.Helper()
	options.Origins = append([]string{a.URL, h.edge.URL()}, options.Origins...)
	v := &visitor{browser.Open(t, options), t, h, a}
	// The console would report each rejected request, at an unpredictable time.
	chrome.Call(v.Tab, log.Disable, cdp.Empty{})
	v.load("/")
	return v
}

// load loads a page of the app, which creates a client.
func (v *visitor) load(path string) {
	v.t.Helper()
	v.Visit(v.app.URL + path)
	v.Holds(`window.client`)
}

// run runs statements of an async function.
func (v *visitor) run(statements string) {
	v.t.Helper()
	chrome.Evaluate[json.RawMessage](v.Tab, "(async () => {"+statements+"\nreturn null})()")
}

// drained flushes the queue, waits until it is empty, and checks the total number of dropped entries.
func (v *visitor) drained(dropped int) {
	v.t.Helper()
	v.run(`client.flush()`)
	v.Holds(`client.waiting === 0`)
	v.checkQueue(0, dropped)
}

// checkQueue checks how many entries wait and how many were dropped.
func (v *visitor) checkQueue(waiting, dropped int) {
	v.t.Helper()
	if got, want := chrome.Evaluate[[2]int](v.Tab, `[client.waiting, client.dropped]`), [2]int{waiting, dropped}; got != want {
		v.t.Errorf("waiting and dropped: %v, expected %v", got, want)
	}
}

// quoted returns a text as a JavaScript literal.
func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}
