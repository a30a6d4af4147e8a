package chrome

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

const (
	// patience is the maximum lifetime of a tab, and bound that of each action. Both allow for a busy machine with few cores.
	patience = 4 * time.Minute
	bound    = time.Minute
)

// Options define what the pages of a tab may do.
type Options struct {
	// Origins are the origins to which pages may send requests, such as "http://127.0.0.1:8080", or only a scheme, such as "blob:". The
	// test may use the clipboard in pages of the first origin.
	Origins []string
	// Elsewhere responds to requests to other origins. Without it, or where it returns nil, such a request fails, and is a fault. It must
	// be safe for concurrent use.
	Elsewhere func(*fetch.EventRequestPaused) *fetch.FulfillRequestParams
	// Forwarded gives each request another client address, as a proxy would. A test clicks faster than a person and would otherwise exceed
	// the rate limit.
	Forwarded bool
	// Expected are issues that Chromium may report.
	Expected []audits.InspectorIssueCode
}

// Tab is a page as one person sees it: 1280 pixels wide, in light mode, without animations.
type Tab struct {
	// Downloads is the folder for downloads.
	Downloads string

	t       *testing.T
	ctx     context.Context
	options Options
	cut     atomic.Bool
	wasCut  atomic.Bool // at any time
	sent    atomic.Uint32
	busy    sync.WaitGroup // with what the browser waits for

	mu     sync.Mutex
	faults []string
}

// Open opens a tab without cookies or history. It is closed at the end of the test, which fails for every unexpected fault.
func (b *Browser) Open(t *testing.T, options Options) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, patience)
	p := &Tab{t: t, ctx: ctx, options: options, Downloads: t.TempDir()}
	t.Cleanup(func() {
		stop()
		cancel()
		p.busy.Wait()
		for _, fault := range p.TakeFaults() {
			t.Error(fault)
		}
	})
	p.Listen(p.hear)
	Call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	Call(p, audits.Enable, cdp.Empty{})
	Call(p, fetch.Enable, fetch.EnableParams{})
	p.Prefer("light")
	p.Size(1280, 900, false)
	if _, err := chromedp.CallBrowser(ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: "allow", DownloadPath: p.Downloads, BrowserContextID: chromedp.FromContext(ctx).BrowserContextID,
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// Elsewhere opens an address in another tab with the same cookies. That tab may close itself, and ends with the test at the latest.
func (p *Tab) Elsewhere(address string) {
	p.t.Helper()
	if _, err := chromedp.CallBrowser(p.ctx, target.CreateTarget, target.CreateTargetParams{URL: address, BrowserContextID: chromedp.FromContext(p.ctx).BrowserContextID}); err != nil {
		p.t.Fatal(err)
	}
}

// Listen calls hear for each later event of the tab, in order. hear must not wait for the tab.
func (p *Tab) Listen(hear func(event any)) {
	p.t.Helper()
	if err := chromedp.Listen(p.ctx, hear); err != nil {
		p.t.Fatal(err)
	}
}

// hear records faults.
func (p *Tab) hear(event any) {
	switch e := event.(type) {
	case *fetch.EventRequestPaused:
		p.busy.Go(func() { p.answer(e) })
	case *page.EventJavascriptDialogOpening:
		p.fault("a dialog: %s", e.Message)
		p.busy.Go(func() {
			_, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		})
	case *runtime.EventConsoleAPICalled:
		p.fault("a script called console.%s", e.Type)
	case *runtime.EventExceptionThrown:
		p.fault("an uncaught error: %s %s", e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description)
	case *log.EventEntryAdded:
		// The console reports each request that Cut failed, at some time.
		if p.wasCut.Load() && strings.Contains(e.Entry.Text, "ERR_CONNECTION_FAILED") {
			return
		}
		p.fault("the console shows %s: %s", e.Entry.Level, e.Entry.Text)
	case *audits.EventIssueAdded:
		if !slices.Contains(p.options.Expected, e.Issue.Code) {
			details, _ := json.Marshal(e.Issue.Details) // report the fault even without details
			p.fault("Chromium reports an issue: %s %s", e.Issue.Code, details)
		}
	}
}

func (p *Tab) fault(format string, values ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, values...))
}

// TakeFaults returns the faults so far, and clears them.
func (p *Tab) TakeFaults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := p.faults
	p.faults = nil
	return faults
}

// Minds waits for a fault that the test provoked, and clears it.
func (p *Tab) Minds(text string) {
	p.t.Helper()
	p.Until("a fault contains "+text, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		before := len(p.faults)
		p.faults = slices.DeleteFunc(p.faults, func(fault string) bool { return strings.Contains(fault, text) })
		return len(p.faults) < before
	})
}

// Call runs one command of the browser.
func Call[P, R any](p *Tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	result, err := chromedp.Call(p.ctx, command, params)
	if err != nil {
		p.t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

func (p *Tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// Evaluate returns the value of a JavaScript expression, or the result of its promise.
func Evaluate[T any](p *Tab, expression string) T {
	p.t.Helper()
	result, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// Until waits for a condition. After a timeout, the test ends and shows the page.
func (p *Tab) Until(what string, so func() bool) {
	p.t.Helper()
	for end := time.Now().Add(bound); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Errorf("not within %v: %s; faults: %q", bound, what, p.TakeFaults())
			p.t.Fatalf("the page:\n%s", p.Text())
		}
	}
}

// Holds waits until an expression is true.
func (p *Tab) Holds(expression string) {
	p.t.Helper()
	p.Until(expression, func() bool { return Evaluate[bool](p, "Boolean("+expression+")") })
}
