package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/testkit/chrome"
)

// seen is a request that reached control, and its status.
type seen struct {
	method, path, site string
	cookie             bool // the session cookie was sent
	status             int
}

// watchedProxy is control's address for browsers. It records every request, and gives each another client address, as many people would have:
// an attack must not stop at the rate limit.
type watchedProxy struct {
	url string
	mu  sync.Mutex
	all []seen
}

func (w *watchedProxy) take() []seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

// openWatched starts another control behind a proxy. People sign in to it with links.
func openWatched(t *testing.T, h *testStack) *watchedProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &watchedProxy{url: "http://" + ln.Addr().String()}
	control, err := h.StartControl(context.Background(), freeAddr(t), "CONSOLE_URL="+w.url, "TRUSTED_PROXIES=127.0.0.1/32")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNode(t, control) })
	n := 0
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: control.Addr})
			r.Out.Host = r.In.Host
			w.mu.Lock()
			defer w.mu.Unlock()
			n++
			r.Out.Header.Set("X-Forwarded-For", fmt.Sprintf("10.1.%d.%d", n>>8&255, n&255))
		},
		ModifyResponse: func(r *http.Response) error {
			_, err := r.Request.Cookie("deeplink_console")
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = append(w.all, seen{r.Request.Method, r.Request.URL.Path, r.Request.Header.Get("Sec-Fetch-Site"), err == nil, r.StatusCode})
			return nil
		},
	}
	server := &http.Server{Handler: proxy}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln) // ends with Close
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	return w
}

// state returns a digest of each table that a call of the console can change.
func (h *testStack) state(t *testing.T) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), h.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	state := make(map[string]string)
	for name, columns := range map[string]string{
		"links": "x", "api_keys": "x", "organizations": "x", "domains": "x", "app_configs": "x", "audit_log": "x", "console_links": "x", "idempotency_keys": "x",
		"console_sessions": "(x.id, x.cookie_hash, x.organization_id, x.ends_at)", // the time of the last call changes with every call
	} {
		var digest string
		if err := conn.QueryRow(t.Context(), fmt.Sprintf(`select count(*) || ':' || md5(coalesce(string_agg(%[2]s::text, '' order by %[2]s::text), '')) from %[1]s x`, name, columns)).Scan(&digest); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		state[name] = digest
	}
	return state
}

// attacked are calls that would change or show something if the console's own page made them. {link} is the id of a link.
var attacked = []struct{ method, path, body string }{
	{"GET", "/portal/session", ""}, {"GET", "/portal/links", ""}, {"GET", "/portal/api-keys", ""}, {"GET", "/portal/sessions", ""},
	{"GET", "/portal/links/{link}/qr.png", ""},
	{"POST", "/portal/links", `{"path":"/attack"}`}, {"POST", "/portal/links/bulk", `{"operations":[{"op":"delete","id":"{link}"}]}`},
	{"POST", "/portal/api-keys/SERVER/regenerate", `{}`}, {"POST", "/portal/domains", `{"host":"evil.example"}`},
	{"POST", "/console/sign-out", ""}, {"POST", "/console/link", `{"token":"x","confirm":true}`},
	{"PUT", "/portal/app-config", `{"fallbackUrl":"https://evil.example/"}`}, {"PUT", "/portal/plan", `{"plan":"free"}`},
	{"PUT", "/portal/session/organization", `{"externalId":"x"}`},
	{"PATCH", "/portal/links/{link}", `{"isActive":false}`}, {"DELETE", "/portal/links/{link}", ""}, {"DELETE", "/portal/sessions/{link}", ""},
}

// attackPage is a page of an attacker.
const attackPage = `<!DOCTYPE html><html lang="en"><title>Attack</title><link rel="icon" href="data:,"><body><script>
const attempt = async (base, {method, path, body}, options) => {
	try {
		const response = await fetch(base + path, {method, body: body || undefined, ...options})
		return response.type === "opaque" ? "opaque" : "read " + response.status + " " + await response.text()
	} catch { return "blocked" }
}
const fetches = async (base, calls) => {
	const results = []
	for (const call of calls) for (const credentials of ["include", "omit"]) {
		results.push([call, await attempt(base, call, {credentials, headers: {"Deeplink-Console": "1", "Content-Type": "application/json"}})])
		results.push([call, await attempt(base, call, {credentials})])
		if (["GET", "POST"].includes(call.method)) results.push([call, await attempt(base, call, {credentials, mode: "no-cors"})])
	}
	return results.filter(([, result]) => result.startsWith("read")).map(([{method, path}, result]) => method + " " + path + ": " + result)
}
const image = (address) => new Promise((resolve) => {
	const made = new Image()
	made.onload = () => resolve(address)
	made.onerror = () => resolve("")
	made.src = address
})
const images = async (base, calls) => (await Promise.all(calls.filter(({method}) => method === "GET").map(({path}) => image(base + path)))).filter(Boolean)
const frame = (address) => new Promise((resolve) => {
	const made = document.createElement("iframe")
	made.onload = () => resolve(made.contentDocument ? "readable" : "")
	made.src = address
	document.body.append(made)
})
const post = (base, {path, body}, target) => {
	const form = document.createElement("form")
	Object.assign(form, {method: "post", action: base + path, enctype: "text/plain", target})
	// name=value makes JSON of the body of a form.
	const field = document.createElement("input")
	field.name = (body || "{}").slice(0, -1) + (body && body !== "{}" ? "," : "") + '"a":"'
	field.value = '"}'
	form.append(field)
	document.body.append(form)
	form.submit()
}
</script></body></html>`

// testOtherOrigins attacks a signed-in browser from pages of another site, and of another port of the same host, to which the browser sends the
// cookie.
func testOtherOrigins(t *testing.T, h *testStack, p *tab) {
	w := openWatched(t, h)
	o := h.tenant(t, "Target Ltd.", "scale", "--app-config", "demo")
	token := h.token(t, o, "owner")
	h.makeLink(t, token, `{"path":"/target"}`)
	link := h.links(t, token)[0].ID
	attacker := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = rw.Write([]byte(attackPage)) // the browser may be gone
	}))
	t.Cleanup(attacker.Close)
	otherPort := attacker.URL
	otherSite := strings.Replace(attacker.URL, "127.0.0.1", "localhost", 1)

	victim := &tab{t: t, browser: p.browser, Tab: p.browser.Open(t, chrome.Options{
		Origins: []string{w.url, otherPort, otherSite, "blob:", "data:"}, Expected: []audits.InspectorIssueCode{audits.InspectorIssueCodePerformanceIssue},
	})}
	var made struct{ URL string }
	if err := json.Unmarshal(h.operate(t, "console-link", "--org", o.key, "--role", "owner", "--console-url", w.url), &made); err != nil {
		t.Fatal(err)
	}
	victim.Visit(made.URL)
	victim.Says("It works once.")
	victim.Key(kb.Enter)
	victim.ready()
	victim.Says("/target")
	before := h.state(t)

	var calls []map[string]string
	for _, c := range attacked {
		fill := strings.NewReplacer("{link}", link)
		calls = append(calls, map[string]string{"method": c.method, "path": fill.Replace(c.path), "body": fill.Replace(c.body)})
	}
	text, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	withCookie := 0
	for _, origin := range []string{otherSite, otherPort} {
		w.take()
		victim.Visit(origin + "/")
		if read := chrome.Evaluate[[]string](victim.Tab, fmt.Sprintf(`fetches(%q, %s)`, w.url, text)); len(read) > 0 {
			t.Errorf("from %s, a page reads %q", origin, read)
		}
		if shown := chrome.Evaluate[[]string](victim.Tab, fmt.Sprintf(`images(%q, %s)`, w.url, text)); len(shown) > 0 {
			t.Errorf("from %s, a page shows %q", origin, shown)
		}
		for _, path := range []string{"/console", "/console/link", "/console/done", "/portal/session", "/portal/links"} {
			if found := chrome.Evaluate[string](victim.Tab, fmt.Sprintf(`frame(%q)`, w.url+path)); found != "" {
				t.Errorf("from %s, %s in a frame is %s", origin, path, found)
			}
		}
		reached := w.take()
		for _, r := range reached {
			if strings.HasPrefix(r.path, "/console/") && strings.HasSuffix(r.path, ".js") {
				t.Errorf("from %s, a frame ran %s", origin, r.path)
			}
		}
		// A form in the same tab: its response takes the page's place.
		for _, c := range calls {
			if c["method"] != "POST" {
				continue
			}
			one, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			victim.Visit(origin + "/")
			chrome.Evaluate[chromedp.Void](victim.Tab, fmt.Sprintf(`void post(%q, %s, "_self")`, w.url, one))
			victim.Holds(fmt.Sprintf(`location.href === %q`, w.url+c["path"]))
		}
		for _, c := range calls {
			if c["method"] != "GET" {
				continue
			}
			victim.Visit(origin + "/")
			chrome.Evaluate[chromedp.Void](victim.Tab, fmt.Sprintf(`void location.assign(%q)`, w.url+c["path"]))
			victim.Holds(fmt.Sprintf(`location.href === %q && document.readyState === "complete"`, w.url+c["path"]))
		}
		reached = append(reached, w.take()...)
		if len(reached) < 2*len(calls) {
			t.Errorf("from %s, only %d requests reached control", origin, len(reached))
		}
		for _, r := range reached {
			if r.path == "/favicon.ico" { // the browser's own request for a response that it shows
				continue
			}
			if r.cookie && r.site != "same-origin" {
				withCookie++
			}
			page := r.method == http.MethodGet && slices.Contains([]string{"/console", "/console/link", "/console/done"}, r.path) // has no data
			blocked := r.method == http.MethodOptions && r.status == http.StatusMethodNotAllowed                                  // the browser then sends no call
			if !page && !blocked && r.status != http.StatusUnauthorized && r.status != http.StatusForbidden {
				t.Errorf("from %s, %s %s (%s, cookie %v) gets %d", origin, r.method, r.path, r.site, r.cookie, r.status)
			}
		}
	}
	if withCookie == 0 {
		t.Error("the browser sent the cookie with no attack, which therefore shows nothing")
	}
	after := h.state(t)
	for name, digest := range before {
		if after[name] != digest {
			t.Errorf("%s has changed: %s, before %s", name, after[name], digest)
		}
	}
	victim.TakeFaults() // the browser reports what it blocked
	victim.Visit(w.url + "/console")
	victim.ready()
	victim.Says("/target")
}
