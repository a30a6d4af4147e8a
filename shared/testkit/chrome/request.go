package chrome

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// Cut has no request come through, or all again. What the console says of those that did not is no fault.
func (p *Tab) Cut(cut bool) {
	if cut {
		p.wasCut.Store(true)
	}
	p.cut.Store(cut)
}

// withdrawn is what Chromium says of a request that its page has given up meanwhile.
const withdrawn = "Invalid InterceptionId"

// answer decides about a request, which waits for that.
func (p *Tab) answer(e *fetch.EventRequestPaused) {
	if err := p.decide(e); err != nil && p.ctx.Err() == nil && !strings.Contains(err.Error(), withdrawn) {
		p.fault("a request for %s could not be answered: %v", e.Request.URL, err)
	}
}

func (p *Tab) decide(e *fetch.EventRequestPaused) error {
	if p.cut.Load() {
		return p.fail(e, network.ErrorReasonConnectionFailed)
	}
	asked, err := origin(e.Request.URL)
	if err != nil {
		return err
	}
	if slices.Contains(p.options.Origins, asked) {
		_, err := chromedp.Call(p.ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID, Headers: p.headers(e)})
		return err
	}
	if p.options.Elsewhere != nil {
		if answer := p.options.Elsewhere(e); answer != nil {
			answer.RequestID = e.RequestID
			_, err := chromedp.Call(p.ctx, fetch.FulfillRequest, *answer)
			return err
		}
	}
	p.fault("the page asked for %s %s", e.ResourceType, e.Request.URL)
	return p.fail(e, network.ErrorReasonBlockedByClient)
}

func (p *Tab) fail(e *fetch.EventRequestPaused, reason network.ErrorReason) error {
	_, err := chromedp.Call(p.ctx, fetch.FailRequest, fetch.FailRequestParams{RequestID: e.RequestID, ErrorReason: reason})
	return err
}

// origin returns the origin that a request goes to, as Options.Origins has it.
func origin(asked string) (string, error) {
	to, err := url.Parse(asked)
	if err != nil {
		return "", err
	}
	if to.Host == "" {
		return to.Scheme + ":", nil
	}
	return to.Scheme + "://" + to.Host, nil
}

// headers are those with which a request goes on. Nil: its own.
func (p *Tab) headers(e *fetch.EventRequestPaused) []*fetch.HeaderEntry {
	if !p.options.Forwarded {
		return nil
	}
	n := p.sent.Add(1)
	headers := []*fetch.HeaderEntry{{Name: "X-Forwarded-For", Value: fmt.Sprintf("10.0.%d.%d", n>>8&255, n&255)}}
	for name, value := range e.Request.Headers {
		if text, ok := value.(string); ok {
			headers = append(headers, &fetch.HeaderEntry{Name: name, Value: text})
		}
	}
	return headers
}
