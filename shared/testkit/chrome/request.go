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

// Cut makes all requests fail, or allows them again. The console messages about failed ones are not faults.
func (p *Tab) Cut(cut bool) {
	if cut {
		p.wasCut.Store(true)
	}
	p.cut.Store(cut)
}

// withdrawn is Chromium's error for a request that its page has canceled meanwhile.
const withdrawn = "Invalid InterceptionId"

// answer decides about a paused request.
func (p *Tab) answer(e *fetch.EventRequestPaused) {
	if err := p.decide(e); err != nil && p.ctx.Err() == nil && !strings.Contains(err.Error(), withdrawn) {
		p.fault("could not continue a request for %s: %v", e.Request.URL, err)
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
	p.fault("the page requested %s %s", e.ResourceType, e.Request.URL)
	return p.fail(e, network.ErrorReasonBlockedByClient)
}

func (p *Tab) fail(e *fetch.EventRequestPaused, reason network.ErrorReason) error {
	_, err := chromedp.Call(p.ctx, fetch.FailRequest, fetch.FailRequestParams{RequestID: e.RequestID, ErrorReason: reason})
	return err
}

// origin returns the origin of a URL, in the form of Options.Origins.
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

// headers returns the headers to send instead of the request's own; nil: no change.
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
