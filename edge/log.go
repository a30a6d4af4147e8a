package main

import (
	"log/slog"
	"net/netip"

	"github.com/valyala/fasthttp"

	"deeplink/shared/clientip"
)

// about says which request a line of the log is about, and from what network it came. An edge
// knows neither organizations nor keys.
func (s *server) about(ctx *fasthttp.RequestCtx) slog.Attr {
	return slog.GroupAttrs("", slog.String("requestId", string(answerID(ctx))),
		slog.String("network", clientip.Network(netip.AddrFrom16(s.client(ctx)))))
}
