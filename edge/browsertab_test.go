package main

import (
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page" // page is a type of ours

	"deeplink/shared/testkit/chrome"
)

// tab is the tab of one visitor, with the URLs that its pages led to.
type tab struct {
	*chrome.Tab
	t  *testing.T
	in *chromium

	mu    sync.Mutex
	asked []string // URLs that its pages led to, and that next has not returned
	back  int      // how many of them it is back from
}

// open opens a tab. The edge responds to its requests; every other host is replaced by a response that keeps the page.
func (c *chromium) open(t *testing.T, v visitor) *tab {
	t.Helper()
	p := &tab{t: t, in: c, Tab: c.browser.Open(t, chrome.Options{
		Origins:   []string{c.base},
		Elsewhere: elsewhere,
		Expected:  []audits.InspectorIssueCode{audits.InspectorIssueCodeBounceTrackingIssue}, // it minds that pages go on by themselves
	})}
	p.Listen(p.hear)
	p.become(v)
	return p
}

// elsewhere responds for all other hosts: images, and pages that are never shown.
func elsewhere(e *fetch.EventRequestPaused) *fetch.FulfillRequestParams {
	if e.ResourceType == network.ResourceTypeDocument {
		return &fetch.FulfillRequestParams{ResponseCode: 204}
	}
	to, err := url.Parse(e.Request.URL)
	if err != nil || e.ResourceType != network.ResourceTypeImage || to.Scheme != "https" || to.Host != pictures {
		return nil
	}
	return &fetch.FulfillRequestParams{
		ResponseCode: 200, Body: picture, ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: "image/png"}},
	}
}

// hear records the URLs that the pages lead to, and when the page is back.
func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventLoadingFailed:
		if e.Type == network.ResourceTypeDocument {
			p.back++
		}
	case *cdppage.EventFrameRequestedNavigation:
		p.asked = append(p.asked, e.URL)
	}
}

// become changes the visitor for the following pages.
func (p *tab) become(v visitor) {
	p.t.Helper()
	override := emulation.SetUserAgentOverrideParams{UserAgent: v.userAgent, AcceptLanguage: v.language}
	if v.hint != "" {
		override.UserAgentMetadata = &emulation.UserAgentMetadata{Platform: v.hint, Mobile: v.touch}
	}
	chrome.Call(p.Tab, emulation.SetUserAgentOverride, override)
	chrome.Call(p.Tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: v.noScript})
	p.Prefer("light")
	p.Size(v.width, v.height, v.touch)
}

// visit opens a page of the edge.
func (p *tab) visit(path string) {
	p.t.Helper()
	p.Visit(p.in.base + path)
	p.mu.Lock()
	p.asked, p.back = nil, 0
	p.mu.Unlock()
}

// leads presses the element with this id and returns the URL that it led to.
func (p *tab) leads(id string) string {
	p.t.Helper()
	return p.leadsBy(func() { p.Press("#" + id) })
}

// leadsBy returns the URL that an action of the visitor led to.
func (p *tab) leadsBy(deed func()) string {
	p.t.Helper()
	deed()
	return p.next()
}

// next waits for the next URL that a page leads to, and until the page is back from there.
func (p *tab) next() (to string) {
	p.t.Helper()
	p.Until("the page leads somewhere", func() bool {
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

// shown returns the ids of everything that can be pressed, from top to bottom.
func (p *tab) shown() []string {
	p.t.Helper()
	return chrome.Evaluate[[]string](p.Tab, `[...document.querySelectorAll("a[href],button")].filter(e => e.checkVisibility()).map(e => e.id)`)
}

func (p *tab) checkShown(want ...string) {
	p.t.Helper()
	if got := p.shown(); !slices.Equal(got, want) {
		p.t.Errorf("the page has buttons %q, expected %q", got, want)
	}
}
