package clients_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"

	"deeplink/shared/testkit"
	"deeplink/shared/testkit/chrome"
)

func TestWebClientInChromium(t *testing.T) {
	testkit.Prove(t)
	h := openTestStack(t)
	browser := chrome.New(t)
	fresh := func(t *testing.T) (*visitor, tenant) {
		o := h.tenant(t)
		return h.visitor(t, browser, o), o
	}

	v, o := fresh(t)
	limited := v.wait(o)

	t.Run("a session is made, and repeated", func(t *testing.T) {
		v, o := fresh(t)
		link := h.link(t, o, `{"path":"/items/7","shortCode":"seven"}`)
		made := chrome.Evaluate[session](v.Tab, `client.start()`)
		if made.SessionID == "" || made.DeviceID != chrome.Evaluate[string](v.Tab, `client.deviceId`) || !made.IsFirstSession || made.Link != nil {
			t.Errorf("a first session: %+v", made)
		}
		v.load("/")
		if again := chrome.Evaluate[session](v.Tab, `client.start()`); again.SessionID != made.SessionID {
			t.Errorf("session %s after a reload, expected %s", again.SessionID, made.SessionID)
		}
		if n := len(v.app.asked("/sdk/session")); n != 1 {
			t.Errorf("%d requests for an existing session, expected one", n)
		}
		opened := chrome.Evaluate[session](v.Tab, `client.start(`+quoted(link.URL)+`)`)
		if opened.SessionID != made.SessionID || opened.Link == nil || opened.Link.Path != "/items/7" {
			t.Errorf("opened by %s: %+v, expected session %s and the link", link.URL, opened, made.SessionID)
		}
		v.run(`client.track("of the session")`)
		v.drained(0)
		if got, want := h.events(t, o), []event{{"of the session", "", made.SessionID}}; !slices.Equal(got, want) {
			t.Errorf("stored %v, expected %v", got, want)
		}
	})

	t.Run("a token in the address matches once", func(t *testing.T) {
		v, o := fresh(t)
		link := h.link(t, o, `{"path":"/items/7"}`)
		v.load("/?a=1&mt=" + h.clickToken(t, link.URL) + "#b")
		if match := chrome.Evaluate[*linkData](v.Tab, `client.match()`); match == nil || match.ID != link.ID || match.Path != "/items/7" {
			t.Errorf("matched %+v, expected %s", match, link.ID)
		}
		if rest := chrome.Evaluate[string](v.Tab, `location.search + location.hash`); rest != "?a=1#b" {
			t.Errorf("the address ends with %s, expected it without the token", rest)
		}
		if match := chrome.Evaluate[*linkData](v.Tab, `client.match()`); match != nil {
			t.Errorf("matched again: %+v", match)
		}
		v.load("/?mt=" + h.clickToken(t, link.URL)[1:])
		if match := chrome.Evaluate[*linkData](v.Tab, `client.match()`); match != nil {
			t.Errorf("a forged token matched %+v", match)
		}
	})

	t.Run("identify keeps its place among the events", func(t *testing.T) {
		v, o := fresh(t)
		v.run(`
			client.track("before")
			client.identify("ann", { plan: "pro" })
			client.identify("ann", { plan: "pro" })
			client.track("as ann")
			client.clearIdentity()
			client.track("after")`)
		v.drained(0)
		if got, want := h.events(t, o), []event{{"after", "", ""}, {"as ann", "ann", ""}, {"before", "", ""}}; !slices.Equal(got, want) {
			t.Errorf("stored %v, expected %v", got, want)
		}
		if n := len(v.app.asked("/sdk/identity")); n != 1 {
			t.Errorf("identify was sent %d times, expected once", n)
		}
	})

	t.Run("a rejected event is lost alone", func(t *testing.T) {
		v, o := fresh(t)
		v.run(`
			client.track("first")
			client.track("bad", { currency: "EURO" })
			client.track("last")`)
		v.drained(1)
		v.run(`client.track("bad too", { revenue: 1e12 })`)
		v.drained(2)
		if got, want := h.events(t, o), []event{{"first", "", ""}, {"last", "", ""}}; !slices.Equal(got, want) {
			t.Errorf("stored %v, expected %v", got, want)
		}
		dropped := chrome.Evaluate[[]string](v.Tab, `drops`)
		if len(dropped) != 2 || !strings.HasPrefix(dropped[0], "bad: currency ") || !strings.Contains(dropped[1], "bad too: ") {
			t.Errorf("dropped %q, expected the two invalid ones with reasons", dropped)
		}
		if batches := v.app.asked("/sdk/events"); len(batches) != 2 || batches[0].status != 200 || batches[1].status != 400 {
			t.Errorf("statuses of batches: %v, expected 200 and 400", batches)
		}
	})

	t.Run("a long queue is sent in batches, and drops the oldest events", func(t *testing.T) {
		v, o := fresh(t)
		v.run(`for (let i = 0; i < 1005; i++) client.track("e" + i, { properties: { text: "é".repeat(500) } })`)
		v.checkQueue(1000, 5)
		v.drained(5)
		stored := h.events(t, o)
		if has := func(name string) bool { return slices.Contains(stored, event{name, "", ""}) }; len(stored) != 1000 || has("e4") || !has("e5") || !has("e1004") {
			t.Errorf("%d stored, expected the last 1000", len(stored))
		}
		for _, batch := range v.app.asked("/sdk/events") {
			if batch.size > 64<<10 || batch.status != 200 {
				t.Errorf("a batch of %d bytes got status %d", batch.size, batch.status)
			}
		}
	})

	t.Run("events are sent while their page unloads", func(t *testing.T) {
		v, o := fresh(t)
		v.run(`client.track("leaving")`)
		v.Visit("about:blank")
		v.Until("the event of an unloaded page arrives", func() bool { return len(h.events(t, o)) == 1 })
	})

	t.Run("a lost response causes no duplicate", func(t *testing.T) {
		v, o := fresh(t)
		v.app.lose.Store(true)
		v.run(`
			client.track("once")
			await client.flush()`)
		v.checkQueue(1, 0)
		if got := h.events(t, o); len(got) != 1 {
			t.Fatalf("stored %v, expected the event whose response was lost", got)
		}
		v.app.lose.Store(false)
		v.drained(0)
		if got := h.events(t, o); len(got) != 1 {
			t.Errorf("stored %v, expected it once", got)
		}
	})

	t.Run("events arrive once after an outage of control", func(t *testing.T) {
		v, o := fresh(t)
		h.stopControl(t)
		v.run(`
			client.track("one")
			client.track("two")
			await client.flush()`)
		v.checkQueue(2, 0)
		v.load("/")
		v.run(`client.track("three")`)
		v.checkQueue(3, 0)
		h.startControl(t)
		v.drained(0)
		if got, want := h.events(t, o), []event{{"one", "", ""}, {"three", "", ""}, {"two", "", ""}}; !slices.Equal(got, want) {
			t.Errorf("stored %v, expected %v", got, want)
		}
	})

	t.Run("a page of a listed origin calls control itself, and no other page can", func(t *testing.T) {
		o := h.tenant(t)
		listed, other := h.app(t, o), h.app(t, o)
		control, err := h.StartControl(t.Context(), freeAddr(t), "CONTROL_SDK_ORIGINS=https://shop.example.com,"+listed.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stopNode(t, control) })
		listed.controlURL, other.controlURL = control.URL(), control.URL()
		v := h.visit(t, browser, listed, chrome.Options{Origins: []string{control.URL()}})
		made := chrome.Evaluate[session](v.Tab, `client.start()`)
		v.run(`
			client.identify("ann")
			client.track("from the page")`)
		v.drained(0)
		if got, want := h.events(t, o), []event{{"from the page", "ann", made.SessionID}}; !slices.Equal(got, want) {
			t.Errorf("stored %v, expected %v", got, want)
		}
		refused := chrome.Evaluate[[]string](v.Tab, `fetch("`+control.URL()+`/sdk/events", {
			method: "POST", headers: { Authorization: "Bearer none", "Content-Type": "application/json", "X-Request-Id": "of the page" }, body: "{}",
		}).then(async (r) => [String(r.status), r.headers.get("X-Request-Id"), (await r.json()).requestId])`)
		if want := []string{"401", "of the page", "of the page"}; !slices.Equal(refused, want) {
			t.Errorf("the page reads %q of an error, expected %q", refused, want)
		}
		if n := len(listed.asked("/sdk/events")); n != 0 {
			t.Errorf("the page's own server forwarded %d requests, expected none", n)
		}

		stranger := h.visit(t, browser, other, chrome.Options{
			Origins: []string{control.URL()}, Expected: []audits.InspectorIssueCode{audits.InspectorIssueCodeCorsIssue},
		})
		if got := chrome.Evaluate[int](stranger.Tab, `client.start().then(() => 200, (e) => e.status)`); got != 0 {
			t.Errorf("a page of another origin reads a response with status %d, expected none", got)
		}
	})

	limited.keeps(t)
}

// patient is a visitor whose key has exceeded the limit on events. The service announces a wait of up to a minute, during which other
// visitors are tested.
type patient struct {
	*visitor
	of      tenant
	refused time.Time
	wait    time.Duration
}

func (v *visitor) wait(o tenant) patient {
	p := patient{visitor: v, of: o}
	p.refused, p.wait = v.meetLimit(o)
	// Neither another event nor a reload shortens the wait.
	v.run(`
		client.track("impatient")
		await client.flush()`)
	v.load("/")
	return p
}

// keeps checks at the end of the wait that the client kept to it.
func (p patient) keeps(t *testing.T) {
	time.Sleep(time.Until(p.refused.Add(p.wait)))
	p.drained(0)
	batches := p.app.asked("/sdk/events")
	for i, batch := range batches[1:] {
		if before := batches[i]; before.status == http.StatusTooManyRequests && batch.at.Sub(before.at) < p.wait {
			t.Errorf("sent again after %v, expected %v", batch.at.Sub(before.at), p.wait)
		}
	}
	stored := p.stack.events(t, p.of)
	if unique := slices.Compact(slices.Clone(stored)); !slices.Contains(stored, event{"impatient", "", ""}) || len(stored) != len(unique) {
		t.Errorf("stored %v, expected all of them once", stored)
	}
}

// meetLimit makes the visitor exceed the limit on events of the organization's key, and returns when that happened and the announced wait.
func (v *visitor) meetLimit(o tenant) (at time.Time, wait time.Duration) {
	v.t.Helper()
	var refused roundTrip
	for i := 0; refused.status != http.StatusTooManyRequests; i++ {
		for status := 0; status != http.StatusTooManyRequests; {
			status, _ = v.stack.post(v.t, "/sdk/events", o.ClientKey, `{}`)
		}
		v.run(fmt.Sprintf(`
			client.track("e%d")
			await client.flush()`, i))
		if batches := v.app.asked("/sdk/events"); len(batches) > 0 {
			refused = batches[len(batches)-1]
		}
	}
	found := retryAfter.FindSubmatch(refused.answer)
	if found == nil {
		v.t.Fatalf("429 says %s", refused.answer)
	}
	seconds, err := strconv.Atoi(string(found[1]))
	if err != nil {
		v.t.Fatal(err)
	}
	return refused.at, time.Duration(seconds) * time.Second
}

var retryAfter = regexp.MustCompile(`Retry after (\d+) second`)
