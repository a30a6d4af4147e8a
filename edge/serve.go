package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/clicks"
	"deeplink/edge/internal/conn"
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
// the cache allocates nothing (TestHitsDoNotAllocate).

var (
	locationHeader     = []byte("Location")
	acceptHeader       = []byte("Accept")
	varyHeader         = []byte("Vary")
	platformHintHeader = []byte("Sec-Ch-Ua-Platform")
)

// handle responds to one request. No error on the way ends the process.
func (s *server) handle(ctx *fasthttp.RequestCtx) {
	s.setCommonHeaders(ctx, sentID(ctx))
	if c, ok := ctx.Conn().(*conn.Conn); ok {
		c.Answered()
	}
	kind := s.recoverPanic(ctx)
	s.requests.add(ctx.ConnID(), kind, ctx.Response.StatusCode())
	s.latencies.sample(ctx.ConnRequestNum(), kind, ctx.Time())
	if s.verbose {
		s.logRequest(ctx, kind)
	}
}

// recoverPanic turns a panic into a 500 and logs it once, with its stack. fasthttp does not recover: a panic would end the process.
func (s *server) recoverPanic(ctx *fasthttp.RequestCtx) (k kind) {
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error("panic", s.requestAttr(ctx),
				slog.String("cause", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
			ctx.Response.Header.DelBytes(locationHeader)
			refuse(ctx, &internal)
		}
	}()
	return s.serveRequest(ctx)
}

// serveRequest finds the route of the request, refuses requests that are malformed, and calls the handler.
func (s *server) serveRequest(ctx *fasthttp.RequestCtx) kind {
	request := &ctx.Request.Header
	var buf [maxKey]byte
	to := s.hosts.route(buf[:0], request.Host(), request.RequestURI())
	if to.kind == kindData || to.kind == kindMatch {
		allowAnyOrigin(ctx)
	}
	switch {
	case !request.IsHTTP11() && !bytes.HasPrefix(request.Protocol(), []byte("HTTP/1.")):
		refuse(ctx, &wrongVersion) // fasthttp closes the connection
	case request.ContentLength() != noContentLength && hasUnknownExpectation(request):
		ctx.SetConnectionClose()
		refuse(ctx, &wrongExpectation)
	case request.ContentLength() != noContentLength && hasTwoLengths(request):
		// A proxy may have seen a different end of this request than the edge did.
		ctx.SetConnectionClose()
		refuse(ctx, &twoLengths)
	case to.refused != nil:
		s.refuseCounted(ctx, to.refused)
	case to.kind == kindData && request.IsOptions():
		preflight(ctx, "GET, HEAD")
	case to.kind == kindMatch && request.IsOptions():
		preflight(ctx, "POST")
	case to.kind == kindMatch && !request.IsPost(), to.kind != kindMatch && !request.IsGet() && !request.IsHead():
		setAllow(ctx, to.kind)
		refuse(ctx, &wrongMethod)
	default:
		s.dispatch(ctx, &to)
	}
	return to.kind
}

// refuseCounted refuses a request whose path leads nowhere. It counts against the rate limit of clicks, so that guessing paths is not
// cheaper than guessing codes.
func (s *server) refuseCounted(ctx *fasthttp.RequestCtx, p *refusal) {
	if wait := s.limiter.Take(s.client(ctx), ctx.Time()); wait > 0 {
		p = rateLimited(wait)
	}
	refuse(ctx, p)
}

func (s *server) dispatch(ctx *fasthttp.RequestCtx, to *route) {
	switch to.kind {
	case kindLink, kindData:
		visit := clicks.Visit{Client: s.client(ctx)}
		s.serveClick(ctx, to, &visit)
		// Before fasthttp sends the response: a click whose response was received must survive the death of this process.
		s.clicks.Record(ctx, &visit)
	case kindMatch:
		s.serveMatch(ctx)
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
		s.serveWellKnown(ctx, to)
	}
}

// serveClick responds to a short URL or its /data: limit, look up, judge. It fills visit in if the response is to be recorded.
func (s *server) serveClick(ctx *fasthttp.RequestCtx, to *route, visit *clicks.Visit) {
	// fasthttp reads this clock after the request has arrived. The replica's promise depends on that.
	now := ctx.Time()
	if wait := s.limiter.Take(visit.Client, now); wait > 0 {
		s.reject(ctx, to, rateLimited(wait), ratelimit.RetryAfter(wait))
		return
	}
	value, err := s.links.Get(now, to.key, to.domain)
	if err != nil {
		s.reject(ctx, to, s.lookupRefusal(ctx, err), 0)
		return
	}
	if value == nil {
		s.reject(ctx, to, &noLink, 0)
		return
	}
	r := link.Record(value)
	if to.kind == kindLink {
		visit.OrgKey = r.OrgKey()
	}
	if r.IsMissing() {
		s.respond(ctx, to, &noLink, visit, click.Unknown)
		return
	}
	visit.Link = r.ID()
	switch catalog.Judge(r.Suspended(), r.Active(), r.Expiry(), now) {
	case catalog.Suspended:
		s.respond(ctx, to, &suspended, visit, click.Suspended)
	case catalog.Inactive:
		s.respond(ctx, to, &inactive, visit, click.Inactive)
	case catalog.Expired:
		s.respond(ctx, to, &expired, visit, click.Expired)
	default:
		if to.kind == kindData {
			serveData(ctx, r)
		} else {
			s.serveLink(ctx, to, r, now, visit)
		}
	}
}

// respond rejects a click with a response that is recorded.
func (s *server) respond(ctx *fasthttp.RequestCtx, to *route, p *refusal, visit *clicks.Visit, outcome click.Outcome) {
	s.reject(ctx, to, p, 0)
	if to.kind == kindLink {
		visit.Outcome = outcome
		visit.Bot = s.clicks.On() && s.agents.Parse(ctx.Request.Header.UserAgent(), nil).Platform == agent.Bot
	}
}

// client returns the key under which the rate limits count a request: the IP address of the client.
func (s *server) client(ctx *fasthttp.RequestCtx) ratelimit.Key {
	var forwarded [][]byte
	if len(s.proxies) > 0 {
		forwarded = ctx.Request.Header.PeekAll(clientip.Header)
	}
	var peer netip.Addr
	if tcp, ok := ctx.RemoteAddr().(*net.TCPAddr); ok {
		peer = tcp.AddrPort().Addr()
	}
	return clientip.Key(s.proxies.Client(peer, forwarded))
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

// serveLink responds to a click on a link that resolves. The client's user agent decides how.
func (s *server) serveLink(ctx *fasthttp.RequestCtx, to *route, r link.Record, now time.Time, visit *clicks.Visit) {
	request := &ctx.Request.Header
	by := s.agents.Parse(request.UserAgent(), request.PeekCanonical(platformHintHeader))
	switch d := r.Destination(); {
	case by.Platform == agent.Bot:
		page.Preview(ctx, shown{r})
		visit.Outcome, visit.Bot = click.Preview, true
	case by.Platform != agent.Desktop && page.HasApp(shown{r}, by.Platform):
		s.handOff(ctx, to, r, by, now)
		visit.Outcome = click.Handoff
	case len(d.Location) > 0:
		redirect(ctx, d, to.query)
		visit.Outcome = click.Redirect
	default:
		page.Landing(ctx, shown{r})
		visit.Outcome = click.Landing
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
func (s *server) handOff(ctx *fasthttp.RequestCtx, to *route, r link.Record, by agent.Agent, now time.Time) {
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
		visit.Token = s.tokens.Append(token[:0], r.ID(), now)
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
func (s *server) serveMatch(ctx *fasthttp.RequestCtx) {
	if wait := s.tokens.Wait(s.client(ctx)); wait > 0 {
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
func (s *server) serveWellKnown(ctx *fasthttp.RequestCtx, to *route) {
	if wait := s.limiter.Take(s.client(ctx), ctx.Time()); wait > 0 {
		refuse(ctx, rateLimited(wait))
		return
	}
	value, err := s.links.Get(ctx.Time(), to.key, to.domain)
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
