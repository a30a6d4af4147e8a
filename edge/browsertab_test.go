package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	cdpbrowser "github.com/chromedp/cdproto/browser" // browser and page are types of ours
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a tab may be needed. Beside other work on few cores a page takes a while.
const patience = 3 * time.Minute

// tab is what one visitor sees. What is wrong with its pages is told when the test ends.
type tab struct {
	t    *testing.T
	ctx  context.Context
	in   *chromium
	busy sync.WaitGroup // with requests

	mu     sync.Mutex
	asked  []string // URLs that its pages led to, and that next has not returned
	back   int      // how many of them it is back from
	faults []string
}

// open opens a tab without cookies or a past.
func (c *chromium) open(t *testing.T, v visitor) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(c.ctx, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, patience)
	p := &tab{t: t, ctx: ctx, in: c}
	t.Cleanup(func() {
		stop()
		cancel()
		p.busy.Wait()
		for _, fault := range p.takeFaults() {
			t.Error(fault)
		}
	})
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	call(p, audits.Enable, cdp.Empty{})
	call(p, fetch.Enable, fetch.EnableParams{})
	p.become(v)
	return p
}

// become has another visitor see the pages that come.
func (p *tab) become(v visitor) {
	p.t.Helper()
	override := emulation.SetUserAgentOverrideParams{UserAgent: v.userAgent, AcceptLanguage: v.language}
	if v.hint != "" {
		override.UserAgentMetadata = &emulation.UserAgentMetadata{Platform: v.hint, Mobile: v.touch}
	}
	call(p, emulation.SetUserAgentOverride, override)
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: v.noScript})
	p.prefer("light")
	p.size(v.width, v.height, v.touch)
}

// prefer chooses between light and dark.
func (p *tab) prefer(scheme string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

func (p *tab) size(width, height int64, touch bool) {
	p.t.Helper()
	if touch {
		p.do(chromedp.EmulateViewport(width, height, chromedp.EmulateMobile, chromedp.EmulateTouch))
	} else {
		p.do(chromedp.EmulateViewport(width, height))
	}
}

// hear notes what happens in the tab. All of this comes in the order in which it happens.
func (p *tab) hear(event any) {
	switch e := event.(type) {
	case *fetch.EventRequestPaused:
		p.busy.Go(func() { p.answer(e) })
	case *network.EventLoadingFailed:
		if e.Type == network.ResourceTypeDocument {
			p.mu.Lock()
			p.back++
			p.mu.Unlock()
		}
	case *cdppage.EventFrameRequestedNavigation:
		p.mu.Lock()
		p.asked = append(p.asked, e.URL)
		p.mu.Unlock()
	case *cdppage.EventJavascriptDialogOpening:
		p.fault("a dialog: %s", e.Message)
		p.busy.Go(func() {
			_, _ = chromedp.Call(p.ctx, cdppage.HandleJavaScriptDialog, cdppage.HandleJavaScriptDialogParams{})
		})
	case *runtime.EventConsoleAPICalled:
		p.fault("a script called console.%s", e.Type)
	case *runtime.EventExceptionThrown:
		p.fault("a script ended with %s %s", e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description)
	case *log.EventEntryAdded:
		p.fault("the console says %s: %s", e.Entry.Level, e.Entry.Text)
	case *audits.EventIssueAdded:
		// It minds that pages go on by themselves, which is what they are for.
		if e.Issue.Code != audits.InspectorIssueCodeBounceTrackingIssue {
			p.fault("Chromium minds: %s %+v", e.Issue.Code, e.Issue.Details.ContentSecurityPolicyIssueDetails)
		}
	}
}

func (p *tab) fault(format string, values ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, values...))
}

// takeFaults returns what was wrong so far, and forgets it.
func (p *tab) takeFaults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := p.faults
	p.faults = nil
	return faults
}

// withdrawn is what Chromium says of a request that its page has given up meanwhile.
const withdrawn = "Invalid InterceptionId"

// answer has the edge answer what it is asked. In place of all others there is nobody, and the page stays.
func (p *tab) answer(e *fetch.EventRequestPaused) {
	to, err := url.Parse(e.Request.URL)
	switch {
	case err != nil:
	case to.Scheme+"://"+to.Host == p.in.base:
		_, err = chromedp.Call(p.ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
	case e.ResourceType == network.ResourceTypeDocument:
		_, err = chromedp.Call(p.ctx, fetch.FulfillRequest, fetch.FulfillRequestParams{RequestID: e.RequestID, ResponseCode: 204})
	case e.ResourceType == network.ResourceTypeImage && to.Scheme == "https" && to.Host == pictures:
		_, err = chromedp.Call(p.ctx, fetch.FulfillRequest, fetch.FulfillRequestParams{
			RequestID: e.RequestID, ResponseCode: 200, Body: picture,
			ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: "image/png"}},
		})
	default:
		p.fault("the page asked for %s %s", e.ResourceType, e.Request.URL)
		_, err = chromedp.Call(p.ctx, fetch.FailRequest, fetch.FailRequestParams{RequestID: e.RequestID, ErrorReason: network.ErrorReasonBlockedByClient})
	}
	if err != nil && p.ctx.Err() == nil && !strings.Contains(err.Error(), withdrawn) {
		p.fault("a request for %s could not be answered: %v", e.Request.URL, err)
	}
}

func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	result, err := chromedp.Call(p.ctx, command, params)
	if err != nil {
		p.t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// evaluate returns what an expression of JavaScript gives; of a promise, what it becomes.
func evaluate[T any](p *tab, expression string) T {
	p.t.Helper()
	result, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// visit goes to a page of the edge.
func (p *tab) visit(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.in.base + path))
	p.mu.Lock()
	p.asked, p.back = nil, 0
	p.mu.Unlock()
}

// box is where something is in a page, in CSS pixels.
type box struct{ X, Y, Width, Height float64 }

// find scrolls to the one element of a selector and returns where it is then.
func (p *tab) find(selector string) box {
	p.t.Helper()
	return evaluate[box](p, fmt.Sprintf(`(() => {
		const found = document.querySelectorAll(%[1]q)
		if (found.length !== 1 || !found[0].checkVisibility()) throw new Error(found.length + " of " + %[1]q)
		found[0].scrollIntoView({block: "center", behavior: "instant"})
		const {x, y, width, height} = found[0].getBoundingClientRect()
		return {X: x, Y: y, Width: width, Height: height}
	})()`, selector))
}

// press clicks what has an id. A tap would do the same, but a headless Chromium on a busy machine has let touches wait for good.
func (p *tab) press(id string) {
	p.t.Helper()
	at := p.find("#" + id)
	p.do(chromedp.MouseClickXY(at.X+at.Width/2, at.Y+at.Height/2))
}

// leads presses what has an id and returns where that led.
func (p *tab) leads(id string) string {
	p.t.Helper()
	return p.leadsBy(func() { p.press(id) })
}

// leadsBy returns where a deed of the visitor led.
func (p *tab) leadsBy(deed func()) string {
	p.t.Helper()
	deed()
	return p.next()
}

// next waits for the next URL that a page leads to, and until the page is back from there.
func (p *tab) next() (to string) {
	p.t.Helper()
	until(p.t, "the page leads somewhere", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.asked) == 0 || p.back == 0 {
			return false
		}
		to, p.asked = p.asked[0], p.asked[1:]
		p.back--
		return true
	})
	return to
}

func (p *tab) checkLeads(id, want string) {
	p.t.Helper()
	if got := p.leads(id); got != want {
		p.t.Errorf("#%s led to %s, expected %s", id, got, want)
	}
}

// shown are the ids of all that can be pressed, from the top.
func (p *tab) shown() []string {
	p.t.Helper()
	return evaluate[[]string](p, `[...document.querySelectorAll("a[href],button")].filter(e => e.checkVisibility()).map(e => e.id)`)
}

func (p *tab) checkShown(want ...string) {
	p.t.Helper()
	if got := p.shown(); !slices.Equal(got, want) {
		p.t.Errorf("the page has buttons %q, expected %q", got, want)
	}
}

func (p *tab) text() string {
	p.t.Helper()
	return evaluate[string](p, `document.body.innerText`)
}

func (p *tab) checkSays(words ...string) {
	p.t.Helper()
	text := p.text()
	for _, want := range words {
		if !strings.Contains(text, want) {
			p.t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
}

func (p *tab) readClipboard() string {
	p.t.Helper()
	p.mayReadClipboard()
	return evaluate[string](p, `navigator.clipboard.readText()`)
}

func (p *tab) writeClipboard(text string) {
	p.t.Helper()
	p.mayReadClipboard()
	evaluate[chromedp.Void](p, fmt.Sprintf(`navigator.clipboard.writeText(%q)`, text))
}

func (p *tab) mayReadClipboard() {
	p.t.Helper()
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		if _, err := chromedp.CallBrowser(p.ctx, cdpbrowser.SetPermission, cdpbrowser.SetPermissionParams{
			Permission: &cdpbrowser.PermissionDescriptor{Name: name}, Setting: cdpbrowser.PermissionSettingGranted,
			Origin: p.in.base, BrowserContextID: chromedp.FromContext(p.ctx).BrowserContextID,
		}); err != nil {
			p.t.Fatal(err)
		}
	}
}
