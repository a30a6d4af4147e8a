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
	"github.com/chromedp/chromedp"
)

const (
	// patience is how long a tab may be needed, and bound how long anything in it may take. Beside other work on few cores both are a while.
	patience = 4 * time.Minute
	bound    = time.Minute
)

// Options are what the pages of a tab may do.
type Options struct {
	// Origins are the origins that they may call, such as "http://127.0.0.1:8080", or a scheme alone, such as "blob:". The test may use the clipboard
	// in pages of the first.
	Origins []string
	// Elsewhere answers what they ask of anybody else. Without it, or where it returns nil, such a request fails, and is a fault. It
	// is called for several at a time.
	Elsewhere func(*fetch.EventRequestPaused) *fetch.FulfillRequestParams
	// Forwarded gives each request the address of another client, as a proxy would. A test clicks faster than a person and is refused for
	// its rate otherwise.
	Forwarded bool
	// Expected are the issues that Chromium may see in them.
	Expected []audits.InspectorIssueCode
}

// Tab is what one person sees: 1280 pixels wide, by day, where nothing moves.
type Tab struct {
	// Downloads is the folder of what the person keeps.
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

// Open opens a tab without cookies or a past. It is closed when the test ends, which fails for every fault that the test did not expect.
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

// Listen has hear told what happens in the tab from now on, in the order in which it happens. It must not wait for the tab.
func (p *Tab) Listen(hear func(event any)) {
	p.t.Helper()
	if err := chromedp.Listen(p.ctx, hear); err != nil {
		p.t.Fatal(err)
	}
}

// hear notes what should not happen.
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
		p.fault("a script ended with %s %s", e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description)
	case *log.EventEntryAdded:
		// The console says so of each request that was cut off, sooner or later.
		if p.wasCut.Load() && strings.Contains(e.Entry.Text, "ERR_CONNECTION_FAILED") {
			return
		}
		p.fault("the console says %s: %s", e.Entry.Level, e.Entry.Text)
	case *audits.EventIssueAdded:
		if !slices.Contains(p.options.Expected, e.Issue.Code) {
			details, _ := json.Marshal(e.Issue.Details) // no words for it are no reason to be silent
			p.fault("Chromium minds: %s %s", e.Issue.Code, details)
		}
	}
}

func (p *Tab) fault(format string, values ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, values...))
}

// TakeFaults returns what was wrong so far, and forgets it.
func (p *Tab) TakeFaults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := p.faults
	p.faults = nil
	return faults
}

// Minds waits for a fault that the test asked for, and forgets it.
func (p *Tab) Minds(text string) {
	p.t.Helper()
	p.Until("a fault is "+text, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		before := len(p.faults)
		p.faults = slices.DeleteFunc(p.faults, func(fault string) bool { return strings.Contains(fault, text) })
		return len(p.faults) < before
	})
}

// Call has the browser do one command.
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

// Evaluate returns what an expression of JavaScript gives; of a promise, what it becomes.
func Evaluate[T any](p *Tab, expression string) T {
	p.t.Helper()
	result, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// Until waits for a condition. When it was in vain, the test ends with what the page shows.
func (p *Tab) Until(what string, so func() bool) {
	p.t.Helper()
	for end := time.Now().Add(bound); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Errorf("not within %v: %s; faults: %q", bound, what, p.TakeFaults())
			p.t.Fatalf("the page says:\n%s", p.Text())
		}
	}
}

// Holds waits until an expression is true.
func (p *Tab) Holds(expression string) {
	p.t.Helper()
	p.Until(expression, func() bool { return Evaluate[bool](p, "Boolean("+expression+")") })
}
