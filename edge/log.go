package main

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/header"
	"deeplink/shared/clientip"
)

// requestAttr identifies a request in the log: its id and the network that it came from. An edge knows neither organizations nor keys.
func (s *server) requestAttr(ctx *fasthttp.RequestCtx) slog.Attr {
	var request header.Fields
	request.Read(&ctx.Request.Header)
	return slog.GroupAttrs("", slog.String("requestId", string(responseID(ctx))),
		slog.String("network", clientip.Network(netip.AddrFrom16(s.client(ctx, &request)))))
}

// logRequest logs a request. Only what is listed here and in requestAttr is ever logged: no header, no query, no path, no address.
func (s *server) logRequest(ctx *fasthttp.RequestCtx, k kind) {
	s.log.Debug("request", slog.String("kind", kindNames[k]), slog.Int("status", ctx.Response.StatusCode()),
		slog.Float64("ms", float64(time.Since(ctx.Time()).Microseconds())/1000), s.requestAttr(ctx))
}

// connectionLog logs what fasthttp reports about broken connections. It drops the arguments: they contain what clients sent.
type connectionLog struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (l connectionLog) Printf(format string, _ ...any) {
	l.log.Debug("connection", slog.String("event", format))
}
