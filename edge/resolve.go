package main

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/replica"
	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
)

// resolve answers a short URL or its data. This is the path of a click: whatever stands here is paid for by each one. When the
// link is in memory, nothing is allocated.
func (s *server) resolve(ctx *fasthttp.RequestCtx, to *route) {
	// The replica's promise rests on it that this clock was read after the request had come.
	now := ctx.Time()
	if wait := s.limiter.Take(s.client(ctx), now); wait > 0 {
		s.turnAway(ctx, to, limited(wait), ratelimit.RetryAfter(wait))
		return
	}
	value, err := s.links.Get(now, to.key, to.domain)
	if err != nil {
		s.turnAway(ctx, to, s.failure(ctx, err), 0)
		return
	}
	if value == nil {
		s.turnAway(ctx, to, &noLink, 0)
		return
	}
	link := record(value)
	switch catalog.Judge(link.suspended(), link.active(), link.expiry(), now) {
	case catalog.Suspended:
		s.turnAway(ctx, to, &suspended, 0)
	case catalog.Inactive:
		s.turnAway(ctx, to, &inactive, 0)
	case catalog.Expired:
		s.turnAway(ctx, to, &expired, 0)
	default:
		if to.kind == kindData {
			describe(ctx, link)
		} else {
			s.lead(ctx, to, link, now)
		}
	}
}

// lead answers a link that resolves. Who asks decides (decisions.md 3).
func (s *server) lead(ctx *fasthttp.RequestCtx, to *route, link record, now time.Time) {
	request := &ctx.Request.Header
	by := s.agents.read(request.UserAgent()).with(request.PeekCanonical(platformHint))
	switch d := link.destination(); {
	case by.platform == bot:
		preview(ctx, link)
	case by.platform == ios && link.fills(slotIOSScheme, slotAppStore), by.platform == android && link.fills(slotAndroidScheme, slotPackage):
		s.handOff(ctx, to, link, by, now)
	case len(d.location) > 0:
		redirect(ctx, d, to.query)
	default:
		land(ctx, link)
	}
}

// redirect sends the visitor on. Not ctx.Redirect, which rewrites the target.
func redirect(ctx *fasthttp.RequestCtx, to destination, query []byte) {
	location := to.location
	if len(query) > 0 {
		var buf [1024]byte
		location = to.appendMerged(buf[:0], query)
	}
	ctx.SetStatusCode(fasthttp.StatusFound)
	ctx.Response.Header.SetCanonical(locationHeader, location)
}

// client returns whom a request is counted under.
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

// failure says what the replica could not do: 503 when nobody could be asked, otherwise 500.
func (s *server) failure(ctx *fasthttp.RequestCtx, err error) *problem {
	if errors.Is(err, replica.ErrUnavailable) {
		return &unavailable
	}
	s.log.Error("request failed", s.about(ctx), slog.String("cause", err.Error()))
	return &internal
}

// fail answers with the envelope what the replica could not.
func (s *server) fail(ctx *fasthttp.RequestCtx, err error) { refuse(ctx, s.failure(ctx, err)) }
