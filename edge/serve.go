package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/clicks"
	"deeplink/edge/internal/conn"
	"deeplink/edge/internal/header"
	"deeplink/edge/internal/link"
	"deeplink/edge/internal/match"
	"deeplink/edge/internal/matchtoken"
	"deeplink/edge/internal/page"
	"deeplink/edge/internal/replica"
	"deeplink/edge/internal/wellknown"
	"deeplink/shared/agent"
	"deeplink/shared/catalog"
	"deeplink/shared/click"
	"deeplink/shared/clientip"
	"deeplink/shared/envelope"
	"deeplink/shared/feed"
	"deeplink/shared/postgres"
	"deeplink/shared/ratelimit"
)

// This file is the path of a click, in reading order: handle → route → limit → look up → judge → respond → record. A click on a link that is in
// the cache allocates nothing (TestMillionHitsDoNotAllocate).

var (
	locationHeader = []byte("Location")
	acceptHeader   = []byte("Accept")
	varyHeader     = []byte("Vary")
)

// handle responds to one request. No error on the way ends the process.
func (s *server) handle(ctx *fasthttp.RequestCtx) {
	var request header.Fields
	request.Read(&ctx.Request.Header)
	s.setCommonHeaders(ctx, request.RequestID, request.Closes)
	if c, ok := ctx.Conn().(*conn.Conn); ok {
		c.Answered()
	}
	kind := s.recoverPanic(ctx, &request)
	s.requests.add(ctx.ConnID(), kind, ctx.Response.StatusCode())
	s.latencies.sample(ctx.ConnRequestNum(), kind, ctx.Time())
	if s.verbose {
		s.logRequest(ctx, kind)
	}
}

// recoverPanic turns a panic into a 500 and logs it once, with its stack. fasthttp does not recover: a panic would end the process.
func (s *server) recoverPanic(ctx *fasthttp.RequestCtx, request *header.Fields) (k kind) {
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error("panic", s.requestAttr(ctx),
				slog.String("cause", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
			ctx.Response.Header.DelBytes(locationHeader)
			refuse(ctx, &internal)
		}
	}()
	return s.serveRequest(ctx, request)
}

// serveRequest finds the route of the request, refuses requests that are malformed, and calls the handler.
func (s *server) serveRequest(ctx *fasthttp.RequestCtx, request *header.Fields) kind {
	head := &ctx.Request.Header
	var buf [maxKey]byte
	to := s.hosts.route(buf[:0], head.Host(), head.RequestURI())
	if to.kind == kindData || to.kind == kindMatch {
		allowAnyOrigin(ctx)
	}
	switch {
	case !head.IsHTTP11() && !bytes.HasPrefix(head.Protocol(), []byte("HTTP/1.")):
		refuse(ctx, &wrongVersion) // fasthttp closes the connection
	case head.ContentLength() != noContentLength && hasUnknownExpectation(head):
		ctx.SetConnectionClose()
		refuse(ctx, &wrongExpectation)
	case head.ContentLength() != noContentLength && hasTwoLengths(head):
		// A proxy may have seen a different end of this request than the edge did.
		ctx.SetConnectionClose()
		refuse(ctx, &twoLengths)
	case to.refused != nil:
		s.refuseCounted(ctx, request, to.refused)
	case to.kind == kindData && head.IsOptions():
		preflight(ctx, "GET, HEAD")
	case to.kind == kindMatch && head.IsOptions():
		preflight(ctx, "POST")
	case to.kind == kindMatch && !head.IsPost(), to.kind != kindMatch && !head.IsGet() && !head.IsHead():
		setAllow(ctx, to.kind)
		refuse(ctx, &wrongMethod)
	default:
		s.dispatch(ctx, &to, request)
	}
	return to.kind
}

// refuseCounted refuses a request whose path leads nowhere. It counts against the rate limit of clicks, so that guessing paths is not
// cheaper than guessing codes.
func (s *server) refuseCounted(ctx *fasthttp.RequestCtx, request *header.Fields, p *refusal) {
	if wait := s.limiter.Take(s.client(ctx, request), ctx.Time()); wait > 0 {
		p = rateLimited(wait)
	}
	refuse(ctx, p)
}

func (s *server) dispatch(ctx *fasthttp.RequestCtx, to *route, request *header.Fields) {
	switch to.kind {
	case kindLink, kindData:
		s.serveClick(ctx, to, request)
	case kindMatch:
		s.serveMatch(ctx, request)
	case kindHealth:
		// The process is alive. Whether it should get requests is answered by /readyz on the admin address.
		ctx.SetContentType(envelope.ContentType)
		ctx.SetBodyString(`{"status":"ok"}`)
	case kindRobots:
		// Everything is allowed: some networks do not preview a link that robots.txt disallows.
		ctx.SetContentType("text/plain; charset=utf-8")
		ctx.SetBodyString("User-agent: *\nDisallow:\n")
	case kindFavicon:
		ctx.SetStatusCode(fasthttp.StatusNoContent)
	case kindWellKnown:
		s.serveWellKnown(ctx, to, request)
	}
}

// serveClick responds to a short URL or its /data: limit, look up, judge, respond, record.
func (s *server) serveClick(ctx *fasthttp.RequestCtx, to *route, request *header.Fields) {
	// fasthttp reads this clock after the request has arrived. The replica's promise depends on that.
	now := ctx.Time()
	key := s.links.Key(to.key, to.domain) // first, so that the limiter works while the processor reads memory
	client := s.client(ctx, request)
	if wait := s.limiter.Take(client, now); wait > 0 {
		s.reject(ctx, to, request, rateLimited(wait), ratelimit.RetryAfter(wait))
		return
	}
	value, err := s.links.Get(now, key)
	if err != nil {
		s.reject(ctx, to, request, s.lookupRefusal(ctx, err), 0)
		return
	}
	if value == nil {
		s.reject(ctx, to, request, &noLink, 0)
		return
	}
	r := link.Record(value)
	var fresh clicks.Value
	var visit clicks.Visit
	visit.Client, visit.OrgKey = client, r.OrgKey()
	visit.Agent = s.clicks.Agent(request.UserAgent, &fresh)
	if r.IsMissing() {
		visit.Outcome = click.Unknown
		s.reject(ctx, to, request, &noLink, 0)
	} else {
		visit.Link = r.ID()
		visit.Outcome = s.judge(ctx, to, request, r, visit.Agent)
	}
	if to.kind == kindLink {
		// Before fasthttp sends the response: a click whose response was received must survive the death of this process.
		s.clicks.Record(ctx, request, &visit)
	}
}

// judge responds to a request for a link, and returns what the response is.
func (s *server) judge(ctx *fasthttp.RequestCtx, to *route, request *header.Fields, r link.Record, by *clicks.Value) click.Outcome {
	switch catalog.Judge(r.Suspended(), r.Active(), r.Expiry(), ctx.Time()) {
	case catalog.Suspended:
		s.reject(ctx, to, request, &suspended, 0)
		return click.Suspended
	case catalog.Inactive:
		s.reject(ctx, to, request, &inactive, 0)
		return click.Inactive
	case catalog.Expired:
		s.reject(ctx, to, request, &expired, 0)
		return click.Expired
	}
	if to.kind == kindData {
		serveData(ctx, r)
		return 0
	}
	return s.serveLink(ctx, to, r, by.Client(request.Platform))
}

// client returns the key under which the rate limits count a request: the IP address of the client. The connection has it unless its peer
// is a trusted proxy, which names the client in each request.
func (s *server) client(ctx *fasthttp.RequestCtx, request *header.Fields) ratelimit.Key {
	if c, ok := ctx.Conn().(*conn.Conn); ok {
		if client, ok := c.Client(); ok {
			return client
		}
	}
	var peer netip.Addr
	if tcp, ok := ctx.RemoteAddr().(*net.TCPAddr); ok {
		peer = tcp.AddrPort().Addr()
	}
	switch {
	case len(s.proxies) == 0 || request.Forwards == 0:
		return clientip.Key(s.proxies.Client(peer, nil))
	case request.Forwards == 1:
		line := [1][]byte{request.Forwarded}
		return clientip.Key(s.proxies.Client(peer, line[:]))
	}
	return clientip.Key(s.proxies.Client(peer, ctx.Request.Header.PeekAll(clientip.Header)))
}

// lookupRefusal returns the refusal for a failed lookup: 503 if Postgres cannot be reached, otherwise 500.
func (s *server) lookupRefusal(ctx *fasthttp.RequestCtx, err error) *refusal {
	if errors.Is(err, replica.ErrUnavailable) {
		return &unavailable
	}
	return s.internalError(ctx, err)
}

// internalError logs an error and returns the refusal for it.
func (s *server) internalError(ctx *fasthttp.RequestCtx, err error) *refusal {
	s.log.Error("request failed", s.requestAttr(ctx), slog.String("cause", err.Error()))
	return &internal
}

// serveLink responds to a click on a link that resolves. The client decides how.
func (s *server) serveLink(ctx *fasthttp.RequestCtx, to *route, r link.Record, by agent.Agent) click.Outcome {
	switch d := r.Destination(); {
	case by.Platform == agent.Bot:
		page.Preview(ctx, shown{r})
		return click.Preview
	case by.Platform != agent.Desktop && page.HasApp(shown{r}, by.Platform):
		s.handOff(ctx, to, r, by)
		return click.Handoff
	case len(d.Location) > 0:
		redirect(ctx, d, to.query)
		return click.Redirect
	default:
		page.Landing(ctx, shown{r})
		return click.Landing
	}
}

// shown is a record as pages see it.
type shown struct{ link.Record }

// Value implements [page.Link]. The texts of a record are those of [page.Prepare], in the order of the slots.
func (s shown) Value(slot page.Slot) []byte { return s.Text(int(slot)) }

// redirect sends the visitor to the destination. It does not use ctx.Redirect, which rewrites the target.
func redirect(ctx *fasthttp.RequestCtx, to link.Destination, query []byte) {
	location := to.Location
	if len(query) > 0 {
		var buf [1024]byte
		location = to.AppendMerged(buf[:0], query)
	}
	ctx.SetStatusCode(fasthttp.StatusFound)
	ctx.Response.Header.SetCanonical(locationHeader, location)
}

// handOff responds with the page that opens the app. A prefetch gets no match token: its page may never be shown.
func (s *server) handOff(ctx *fasthttp.RequestCtx, to *route, r link.Record, by agent.Agent) {
	d := r.Destination()
	visit := page.Visit{Agent: by, Destination: d.Location, Merged: d.Location, Room: r.WebRoom()}
	var token [matchtoken.Length]byte
	switch {
	case !s.tokens.Enabled():
	case page.IsPrefetch(&ctx.Request.Header):
		visit.Early = true
	case ctx.IsHead():
		visit.Token = token[:] // a placeholder: a HEAD request mints no token, but gets the same Content-Length
	default:
		visit.Token = s.tokens.Append(token[:0], r.ID(), ctx.Time())
	}
	var merged [1024]byte
	if len(to.query) > 0 && len(d.Location) > 0 {
		visit.Merged = d.AppendMerged(merged[:0], to.query)
	}
	page.HandOff(ctx, shown{r}, &visit)
}

// serveData responds to /data.
func serveData(ctx *fasthttp.RequestCtx, r link.Record) {
	ctx.SetContentType(envelope.ContentType)
	// Appending to the response's own buffer, which fasthttp reuses.
	body := ctx.Response.SwapBody(nil)
	ctx.Response.SwapBody(r.AppendData(body[:0]))
}

// serveMatch responds to POST /match.
func (s *server) serveMatch(ctx *fasthttp.RequestCtx, request *header.Fields) {
	if wait := s.tokens.Wait(s.client(ctx, request)); wait > 0 {
		refuse(ctx, rateLimited(wait))
		return
	}
	body, err := s.tokens.Redeem(&ctx.Request.Header, ctx.PostBody(), ctx.Time())
	invalid := new(match.InvalidError)
	switch {
	case err == nil:
		ctx.SetContentType(envelope.ContentType)
		ctx.SetBody(body)
	case errors.Is(err, match.ErrNotJSON):
		refuse(ctx, &notJSON)
	case errors.As(err, &invalid):
		refuse(ctx, validationFailed(invalid.Details))
	case postgres.Unreachable(err):
		refuse(ctx, &unavailable)
	default:
		refuse(ctx, s.internalError(ctx, err))
	}
}

// serveWellKnown responds to an association file. Apps are listed whatever the organization's plan, and even if it is suspended: a
// device or Apple's CDN that finds no app remembers that for days after the links are back. For the same reason a known host without
// an app gets an empty list, not a status that a device could take for a failure. Like every response it must not be cached: an app
// config that was replaced must not survive in a cache in front of the edge.
func (s *server) serveWellKnown(ctx *fasthttp.RequestCtx, to *route, request *header.Fields) {
	if wait := s.limiter.Take(s.client(ctx, request), ctx.Time()); wait > 0 {
		refuse(ctx, rateLimited(wait))
		return
	}
	value, err := s.links.Get(ctx.Time(), s.links.Key(to.key, to.domain))
	if err != nil {
		refuse(ctx, s.lookupRefusal(ctx, err))
		return
	}
	if value == nil {
		refuse(ctx, &noRoute)
		return
	}
	file := wellknown.Rendered(value)
	if string(to.key[:to.domain]) == feed.SharedDomain {
		s.noteLeftOut(wellknown.Index(string(to.key[to.domain+1:])), file.LeftOut())
	}
	ctx.SetContentType(envelope.ContentType)
	ctx.Response.SetBodyRaw(file.Body())
}

// noteLeftOut keeps how many organizations a file of the shared host has no room for, and logs the number when it changes.
func (s *server) noteLeftOut(file, organizations int) {
	if was := s.requests.leftOut[file].Swap(int64(organizations)); was != int64(organizations) && organizations > 0 {
		s.log.Warn("the association file of the shared host has no room for some organizations: give each of them a custom domain",
			slog.String("path", wellknown.Files[file].Path), slog.Int("organizations", organizations))
	}
}
