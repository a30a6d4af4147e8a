package main

import (
	"bytes"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// errorPages knows which organizations want a person who follows a link in vain to see a page (app config htmlErrorPages): of each
// domain that exists and was asked for. It is no part of the replica, because a click is also turned away when the replica must not
// be asked or cannot answer. The zero value is ready; it is safe for concurrent use.
type errorPages struct {
	mu     sync.Mutex
	wanted map[string]wish // by domain
}

type wish struct {
	asked time.Time
	pages bool
}

// heard takes what the database said about a domain to who asked it at the given time. Of two the one that was asked later counts:
// whoever is answered from a load that began after a change has ended sees the wish from after that change, or a later one.
func (e *errorPages) heard(domain string, asked time.Time, pages bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known, ok := e.wanted[domain]; ok && known.asked.After(asked) {
		return
	}
	if e.wanted == nil {
		e.wanted = make(map[string]wish)
	}
	e.wanted[domain] = wish{asked, pages}
}

func (e *errorPages) on(domain []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wanted[string(domain)].pages
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
