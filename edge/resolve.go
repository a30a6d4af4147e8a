package main

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/replica"
	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
)

// resolve answers a short URL or its data. This is the path of a click: whatever stands here is paid for by each one. When the
// link is in memory and leads somewhere, nothing is allocated.
func (s *server) resolve(ctx *fasthttp.RequestCtx, to *route) {
	// The replica's promise rests on it that this clock was read after the request had come.
	now := ctx.Time()
	if wait := s.limiter.Take(s.client(ctx), now); wait > 0 {
		refuse(ctx, limited(wait))
		return
	}
	value, err := s.links.Get(now, to.key, to.domain)
	if err != nil {
		s.fail(ctx, err)
		return
	}
	if value == nil {
		refuse(ctx, &noLink)
		return
	}
	link := record(value)
	switch catalog.Judge(link.suspended(), link.active(), link.expiry(), now) {
	case catalog.Suspended:
		refuse(ctx, &suspended)
	case catalog.Inactive:
		refuse(ctx, &inactive)
	case catalog.Expired:
		refuse(ctx, &expired)
	default:
		if to.kind == kindData {
			describe(ctx, link)
		} else if d := link.destination(); len(d.location) > 0 {
			redirect(ctx, d, to.query)
		} else {
			land(ctx, link)
		}
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

// fail answers what the replica could not: 503 when nobody could be asked, otherwise 500.
func (s *server) fail(ctx *fasthttp.RequestCtx, err error) {
	if errors.Is(err, replica.ErrUnavailable) {
		refuse(ctx, &unavailable)
		return
	}
	s.log.Error("request failed", slog.String("requestId", string(answerID(ctx))), slog.String("cause", err.Error()))
	refuse(ctx, &internal)
}
