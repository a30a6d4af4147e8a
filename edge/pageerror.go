package main

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/valyala/fasthttp"
)

// maxWanted bounds how many domains are remembered to want pages: they take about 200 bytes each, beside EDGE_CACHE_BYTES.
const maxWanted = 1 << 16

// errorPages knows which domains are of organizations that want a person who follows a link in vain to see a page (app config
// htmlErrorPages): as the database said when it was last asked for something on the domain. It is no part of the replica, because a
// click is also turned away when the replica must not be asked or cannot answer. The zero value is ready; it is safe for concurrent
// use.
type errorPages struct {
	wanted sync.Map // has the domains that do; written under mu
	mu     sync.Mutex
	count  int                // of wanted
	asked  uint64             // how many questions there ever were
	open   map[string]*asking // by domain
}

// asking is what must be known of a domain while questions about it are under way, and no longer.
type asking struct {
	questions int
	heard     uint64 // the number of the last question that was answered
}

// question is one about a domain.
type question struct {
	pages  *errorPages
	domain string
	number uint64
}

// ask must be called before the database is asked for something on a domain, and end of the question when that is over.
func (e *errorPages) ask(domain string) question {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open[domain] == nil {
		if e.open == nil {
			e.open = make(map[string]*asking)
		}
		e.open[domain] = new(asking)
	}
	e.open[domain].questions++
	e.asked++
	return question{e, domain, e.asked}
}

// heard takes what the database answered; a domain that does not exist wants no pages. Of two answers that of the later question
// counts: whoever is answered from a load that began after a change has ended sees the wish from after that change, or a later one.
func (q question) heard(wanted bool) {
	e := q.pages
	e.mu.Lock()
	defer e.mu.Unlock()
	if about := e.open[q.domain]; about.heard < q.number {
		about.heard = q.number
		e.set(q.domain, wanted)
	}
}

func (q question) end() {
	e := q.pages
	e.mu.Lock()
	defer e.mu.Unlock()
	about := e.open[q.domain]
	if about.questions--; about.questions == 0 {
		delete(e.open, q.domain)
	}
}

// set is called with mu held. When there are too many domains that want pages, any of them gets none until it is asked for again.
func (e *errorPages) set(domain string, wanted bool) {
	_, known := e.wanted.Load(domain)
	switch {
	case known == wanted:
	case known:
		e.wanted.Delete(domain)
		e.count--
	default:
		if e.count == maxWanted {
			e.wanted.Range(func(other, _ any) bool {
				e.wanted.Delete(other)
				return false
			})
			e.count--
		}
		e.wanted.Store(domain, nil)
		e.count++
	}
}

func (e *errorPages) on(domain []byte) bool {
	_, wanted := e.wanted.Load(string(domain))
	return wanted
}

// trouble is what a person is told about a problem.
type trouble uint8

const (
	missing trouble = iota
	gone
	outOfTime
	busy
	broken
	troubles
)

func troubleOf(p *problem) trouble {
	switch {
	case p == &noLink:
		return missing
	case p == &expired:
		return outOfTime
	case p == &inactive || p == &suspended:
		return gone
	case p.status == fasthttp.StatusTooManyRequests:
		return busy
	}
	return broken
}

// turnAway answers a request for a link with a problem: as a page when the organization wants that and a browser navigates, otherwise
// with the envelope. seconds is for a problem that ends by itself.
func (s *server) turnAway(ctx *fasthttp.RequestCtx, to *route, p *problem, seconds int) {
	if to.kind != kindLink || !s.pages.on(to.key[:to.domain]) {
		refuse(ctx, p)
		return
	}
	ctx.Response.Header.SetCanonical(varyHeader, acceptHeader)
	if !listsHTML(ctx.Request.Header.PeekCanonical(acceptHeader)) {
		refuse(ctx, p)
		return
	}
	var v visit
	v[slotSeconds] = strconv.AppendInt(nil, int64(seconds), 10)
	v[slotID] = appendEscaped(nil, answerID(ctx))
	ctx.SetStatusCode(p.status)
	l := languageFor(ctx.Request.Header.PeekCanonical(acceptLanguage))
	l.problems[troubleOf(p)].answer(ctx, l, nil, &v)
}

var (
	acceptHeader = []byte("Accept")
	varyHeader   = []byte("Vary")
)

// listsHTML reports whether a header Accept names HTML, as those of browsers do when they navigate.
func listsHTML(accept []byte) bool {
	for len(accept) > 0 {
		var item []byte
		item, accept = cut(accept, ',')
		kind, parameters := cut(item, ';')
		if bytes.EqualFold(bytes.TrimSpace(kind), []byte("text/html")) {
			return weightOf(parameters) > 0
		}
	}
	return false
}
