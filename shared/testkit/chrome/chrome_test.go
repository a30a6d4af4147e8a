package chrome

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp/kb"

	"deeplink/shared/testkit"
)

// greeter is a page that greets. It fetches the greeting from %s.
const greeter = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Greeter</title><link rel="icon" href="data:,">
<form><label>Name <input name="person" value="Unknown"></label><select name="how"><option>Hello</option><option>Bye</option></select>
<button>Greet</button></form><button id="copy">Copy</button><button id="ask">Ask</button><p id="said"></p>
<p style="color:#999;background:#fff">faint words</p><p style="color:#333;background:#fff">strong words</p>
<script>
const said = document.getElementById("said"), form = document.forms[0]
form.onsubmit = (e) => { e.preventDefault(); said.textContent = form.how.value + ", " + form.person.value }
document.getElementById("copy").onclick = () => navigator.clipboard.writeText(said.textContent)
document.getElementById("ask").onclick = () => fetch("%s/name").then(r => r.text()).then(name => said.textContent = "Asked: " + name).catch(() => said.textContent = "Asked in vain")
</script>`

// serve serves the page on a new origin.
func serve(t *testing.T, asked string) (origin string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, greeter, asked)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestTab uses a page as a person would. The tabs run one after the other.
func TestTab(t *testing.T) {
	testkit.Prove(t)
	browser := New(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Browser)
	}{
		{"actions and their results", testDoneIsSeen},
		{"faults are reported", testWrongIsTold},
		{"requests only to allowed origins", testRequests},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, browser) })
	}
}

func testDoneIsSeen(t *testing.T, browser *Browser) {
	origin := serve(t, "")
	p := browser.Open(t, Options{Origins: []string{origin}})
	p.Visit(origin)
	p.Write(`[name="person"]`, "Ada")
	p.Choose("select", "Bye")
	p.Press("form button")
	p.Says("Bye, Ada")
	p.SaysNot("Unknown", "Hello, ")
	p.Press("#copy")
	if copied := p.ReadClipboard(); copied != "Bye, Ada" {
		t.Errorf("copied %q", copied)
	}
	p.WriteClipboard(`"kept"`)
	if copied := p.ReadClipboard(); copied != `"kept"` {
		t.Errorf("copied %q", copied)
	}
	p.Write(`[name="person"]`, "")
	p.Key(kb.Enter)
	p.Holds(`document.getElementById("said").textContent === "Bye, "`)
	if found := p.Faint(); len(found) != 1 || !strings.HasPrefix(found[0], "faint words: 2.8") {
		t.Errorf("too faint are %q", found)
	}
	p.Size(360, 640, true)
	if wide := Evaluate[int](p, "innerWidth"); wide < 360 || wide > 1000 {
		t.Errorf("the phone's screen is %d pixels wide", wide)
	}
	file := filepath.Join(t.TempDir(), "shots", "greeter.png")
	p.Shoot(file)
	if shot, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(shot), "\x89PNG") {
		t.Errorf("a screenshot of %d bytes: %v", len(shot), err)
	}
	p.Visit(origin + "#copy")
	p.SaysNot("Bye, ")
}

func testWrongIsTold(t *testing.T, browser *Browser) {
	origin := serve(t, "")
	p := browser.Open(t, Options{Origins: []string{origin}})
	p.Visit(origin)
	for script, fault := range map[string]string{
		`setTimeout(() => console.log("here"))`:            "console.log",
		`setTimeout(() => { throw new Error("thrown") })`:  "thrown",
		`setTimeout(() => alert("look"))`:                  "a dialog: look",
		`void fetch("http://127.0.0.2:9/").catch(() => 0)`: "the page requested XHR http://127.0.0.2:9/",
	} {
		Evaluate[any](p, script)
		p.Minds(fault)
	}
	p.Minds("ERR_BLOCKED_BY_CLIENT")
	if left := p.TakeFaults(); len(left) != 0 {
		t.Errorf("unexpected faults: %q", left)
	}
}

func testRequests(t *testing.T, browser *Browser) {
	const elsewhere = "http://elsewhere.example"
	origin := serve(t, elsewhere)
	p := browser.Open(t, Options{
		Origins: []string{origin},
		Elsewhere: func(e *fetch.EventRequestPaused) *fetch.FulfillRequestParams {
			if e.Request.URL != elsewhere+"/name" {
				return nil
			}
			return &fetch.FulfillRequestParams{ResponseCode: 200, Body: []byte("Grace"), ResponseHeaders: []*fetch.HeaderEntry{
				{Name: "Access-Control-Allow-Origin", Value: "*"},
			}}
		},
	})
	p.Visit(origin)
	p.Press("#ask")
	p.Says("Asked: Grace")
	p.Cut(true)
	p.Press("#ask")
	p.Says("Asked in vain")
	p.Cut(false)

	var from []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.Header.Get("X-Forwarded-For"))
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, greeter, "")
	}))
	t.Cleanup(server.Close)
	p = browser.Open(t, Options{Origins: []string{server.URL}, Forwarded: true})
	p.Visit(server.URL)
	p.Visit(server.URL)
	if want := []string{"10.0.0.1", "10.0.0.2"}; !slices.Equal(from, want) {
		t.Errorf("requests came from %q, expected %q", from, want)
	}
}
