package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const (
	// patience is how long a tab may be needed, and bound how long anything in it may take. Beside other work on few cores both are a while.
	patience = 4 * time.Minute
	bound    = time.Minute
)

// startChromium returns the context of a browser, for tabs.
func startChromium(t *testing.T) context.Context {
	t.Helper()
	path := findChromium(t)
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // it has none for root, nor in most containers
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-gpu", true),
		chromedp.Flag("disable-features", "BackForwardCache,Translate"),
		chromedp.Flag("disable-quic", true),
	)...)
	t.Cleanup(cancel)
	ctx, _ := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
	})
	return ctx
}

// findChromium skips the test where there is no browser, but not in CI.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "there is no Chromium; deploy/local/install.sh chromium installs it"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// tab is a page in front of an administrator. What is wrong with it is told when the test ends.
type tab struct {
	t       *testing.T
	ctx     context.Context
	allowed []string    // origins
	cut     atomic.Bool // no request comes through
	sent    atomic.Uint32
	busy    sync.WaitGroup
	// downloads is where the browser keeps files.
	downloads string

	mu     sync.Mutex
	faults []string
}

// openTab opens a tab without a past, which may ask the allowed origins and no other.
func openTab(t *testing.T, browserContext context.Context, allowed ...string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browserContext, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, patience)
	p := &tab{t: t, ctx: ctx, allowed: allowed, downloads: t.TempDir()}
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
	p.prefer("light")
	p.size(1280, 900)
	if _, err := chromedp.CallBrowser(ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: "allow", DownloadPath: p.downloads, BrowserContextID: chromedp.FromContext(ctx).BrowserContextID,
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		if _, err := chromedp.CallBrowser(ctx, browser.SetPermission, browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted,
			Origin: allowed[0], BrowserContextID: chromedp.FromContext(ctx).BrowserContextID,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// prefer chooses between light and dark. Nothing moves.
func (p *tab) prefer(scheme string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

func (p *tab) size(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// hear notes what should not happen in the tab.
func (p *tab) hear(event any) {
	switch e := event.(type) {
	case *fetch.EventRequestPaused:
		p.busy.Go(func() { p.letPass(e) })
	case *page.EventJavascriptDialogOpening:
		p.fault("a dialog: %s", e.Message)
		p.busy.Go(func() {
			_, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		})
	case *runtime.EventConsoleAPICalled:
		p.fault("a script called console.%s", e.Type)
	case *runtime.EventExceptionThrown:
		p.fault("a script ended with %s %s", e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description)
	case *log.EventEntryAdded:
		p.fault("the console says %s: %s", e.Entry.Level, e.Entry.Text)
	case *audits.EventIssueAdded:
		// It minds that the test itself looks for cookies.
		if e.Issue.Code != audits.InspectorIssueCodePerformanceIssue {
			p.fault("Chromium minds: %s %+v", e.Issue.Code, e.Issue.Details)
		}
	}
}

// withdrawn is what Chromium says of a request that its page has given up meanwhile.
const withdrawn = "Invalid InterceptionId"

// letPass sends a request on its way when it goes to where requests may go.
func (p *tab) letPass(e *fetch.EventRequestPaused) {
	to, err := url.Parse(e.Request.URL)
	if p.cut.Load() {
		_, err = chromedp.Call(p.ctx, fetch.FailRequest, fetch.FailRequestParams{RequestID: e.RequestID, ErrorReason: network.ErrorReasonConnectionFailed})
	} else if err == nil && (to.Scheme == "blob" || to.Scheme == "data" || slices.Contains(p.allowed, to.Scheme+"://"+to.Host)) {
		_, err = chromedp.Call(p.ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID, Headers: p.forwarded(e)})
	} else {
		p.fault("the page asked for %s %s", e.ResourceType, e.Request.URL)
		_, err = chromedp.Call(p.ctx, fetch.FailRequest, fetch.FailRequestParams{RequestID: e.RequestID, ErrorReason: network.ErrorReasonBlockedByClient})
	}
	if err != nil && p.ctx.Err() == nil && !strings.Contains(err.Error(), withdrawn) {
		p.fault("a request for %s could not go on: %v", e.Request.URL, err)
	}
}

// forwarded are the headers of a request as a proxy would send it on: each for another client. Nobody clicks as fast as a test, which is
// refused for its rate otherwise.
func (p *tab) forwarded(e *fetch.EventRequestPaused) []*fetch.HeaderEntry {
	n := p.sent.Add(1)
	headers := []*fetch.HeaderEntry{{Name: "X-Forwarded-For", Value: fmt.Sprintf("10.0.%d.%d", n>>8&255, n&255)}}
	for name, value := range e.Request.Headers {
		if text, ok := value.(string); ok {
			headers = append(headers, &fetch.HeaderEntry{Name: name, Value: text})
		}
	}
	return headers
}

func (p *tab) fault(format string, values ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, values...))
}

func (p *tab) takeFaults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := p.faults
	p.faults = nil
	return faults
}

// minds waits for what the browser writes on its console about an answer that the test asked for, and forgets it.
func (p *tab) minds(text string) {
	p.t.Helper()
	until(p.t, "the console says "+text, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		before := len(p.faults)
		p.faults = slices.DeleteFunc(p.faults, func(fault string) bool { return strings.Contains(fault, text) })
		return len(p.faults) < before
	})
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

// until waits for a condition.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// holds waits until an expression is true.
func (p *tab) holds(expression string) {
	p.t.Helper()
	p.until(expression, func() bool { return evaluate[bool](p, "Boolean("+expression+")") })
}

// until is as the function, and says what the page shows when it was in vain.
func (p *tab) until(what string, so func() bool) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() && p.ctx.Err() == nil {
			p.t.Logf("the page says:\n%s\nfaults: %q", p.text(), p.takeFaults())
		}
	}()
	until(p.t, what, so)
}

func (p *tab) text() string {
	p.t.Helper()
	return evaluate[string](p, `document.body.innerText`)
}

// says waits until the page does.
func (p *tab) says(words ...string) {
	p.t.Helper()
	for _, word := range words {
		p.until("the page says "+word, func() bool { return strings.Contains(p.text(), word) })
	}
}

func (p *tab) checkNot(words ...string) {
	p.t.Helper()
	text := p.text()
	for _, word := range words {
		if strings.Contains(text, word) {
			p.t.Errorf("the page says %q:\n%s", word, text)
		}
	}
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

// box is where something is in a page, in CSS pixels.
type box struct{ X, Y, Width, Height float64 }

// reach scrolls to the one element of a selector and returns where it is, once it is what a click there would hit.
func (p *tab) reach(selector string) (at box) {
	p.t.Helper()
	expression := fmt.Sprintf(`(() => {
		const found = [...document.querySelectorAll(%s)].filter(e => e.checkVisibility())
		if (found.length !== 1) return {}
		found[0].scrollIntoView({block: "center", behavior: "instant"})
		const {x, y, width, height} = found[0].getBoundingClientRect()
		return found[0].contains(document.elementFromPoint(x + width / 2, y + height / 2)) ? {X: x, Y: y, Width: width, Height: height} : {}
	})()`, quoted(selector))
	p.until(selector+" can be pressed", func() bool {
		at = evaluate[box](p, expression)
		return at.Width > 0
	})
	return at
}

func (p *tab) press(selector string) {
	p.t.Helper()
	at := p.reach(selector)
	p.do(chromedp.MouseClickXY(at.X+at.Width/2, at.Y+at.Height/2))
}

// write replaces what is in a field, as somebody does who types.
func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.press(selector)
	p.holds(fmt.Sprintf(`document.activeElement === document.querySelector(%s)`, quoted(selector)))
	evaluate[chromedp.Void](p, `void document.activeElement.select()`)
	if text == "" {
		p.key("Backspace", 8)
		return
	}
	call(p, input.InsertText, input.InsertTextParams{Text: text})
}

// choose takes an option of a select, whose list no headless browser shows.
func (p *tab) choose(selector, value string) {
	p.t.Helper()
	p.reach(selector)
	evaluate[chromedp.Void](p, fmt.Sprintf(`void (document.querySelector(%s).value = %s)`, quoted(selector), quoted(value)))
}

// key presses a key that writes nothing.
func (p *tab) key(name string, code int64) {
	p.t.Helper()
	down := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: name, Code: name, WindowsVirtualKeyCode: code}
	if name == "Enter" {
		down.Type, down.Text = input.DispatchKeyEventTypeKeyDown, "\r" // without it no form is sent
	}
	call(p, input.DispatchKeyEvent, down)
	call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: name, Code: name, WindowsVirtualKeyCode: code})
}

// visit goes to a page, also when it is the one that is shown.
func (p *tab) visit(address string) {
	p.t.Helper()
	if err := errors.Join(chromedp.Do(p.ctx, chromedp.Navigate("about:blank")), chromedp.Do(p.ctx, chromedp.Navigate(address))); err != nil {
		p.t.Fatal(err)
	}
}
