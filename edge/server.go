package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/clicks"
	"deeplink/edge/internal/conn"
	"deeplink/edge/internal/header"
	"deeplink/edge/internal/match"
	"deeplink/edge/internal/replica"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
	"deeplink/shared/wire"
)

// The bounds of a request. A deadline may take effect [conn.DeadlineSlack] later.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 10 * time.Second
	idleTimeout  = time.Minute
	writeBuffer  = 8 << 10 // so that most pages are sent in one system call
	maxBody      = 16 << 10
)

// server serves the public address.
type server struct {
	http       *fasthttp.Server
	hosts      hosts
	proxies    clientip.Proxies
	limiter    *ratelimit.Memory
	links      *replica.Replica
	tokens     *match.Tokens
	errorPages *errorPages
	clicks     *clicks.Recorder
	requests   requests
	latencies  latencies
	log        *slog.Logger
	verbose    bool // log each request
	draining   atomic.Bool
}

func newServer(c *options, links *replica.Replica, errorPages *errorPages, tokens *match.Tokens, recorder *clicks.Recorder, log *slog.Logger) *server {
	s := &server{
		hosts: newHosts(c.LinkBaseURL, c.ExtraHosts), proxies: c.TrustedProxies.Proxies,
		limiter: ratelimit.NewMemory(ratelimit.Resolution, c.RateLimitAddresses), links: links, tokens: tokens,
		errorPages: errorPages, clicks: recorder, latencies: newLatencies(), log: log,
		verbose: log.Enabled(context.Background(), slog.LevelDebug),
	}
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.refuseUnreadable,
		Logger:                       connectionLog{log},
		SecureErrorLogMessage:        true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		ReduceMemoryUsage:            true, // see conn.Conn
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		ReadBufferSize:               conn.MaxHeader,
		WriteBufferSize:              writeBuffer,
		MaxRequestBodySize:           maxBody,
		ExpectHandler:                s.expect,
		Concurrency:                  2 * c.MaxConnections, // never reached: the listener refuses connections first
	}
	return s
}

// noContentLength is what fasthttp returns as the length of a request without a body.
const noContentLength = -2

// expect handles "Expect: 100-continue": fasthttp sends 100 unless the body would be refused anyway. In HTTP/1.0 there is no 100
// response (RFC 9110, section 10.1.1).
func (s *server) expect(ctx *fasthttp.RequestCtx) int {
	p := &longBody
	switch request := &ctx.Request.Header; {
	case !request.IsHTTP11():
		p = &wrongExpectation
	case request.ContentLength() <= maxBody:
		return fasthttp.StatusContinue
	}
	var read header.Fields
	read.Read(&ctx.Request.Header)
	s.setCommonHeaders(ctx, read.RequestID, read.Closes)
	refuse(ctx, p)
	s.requests.add(ctx.ConnID(), kindNone, p.status)
	return p.status
}

// hasUnknownExpectation reports whether a request with a body expects anything other than 100-continue, which fasthttp has handled.
func hasUnknownExpectation(request *fasthttp.RequestHeader) bool {
	for _, expected := range request.PeekAll("Expect") {
		if !bytes.EqualFold(expected, []byte("100-continue")) {
			return true
		}
	}
	return false
}

// hasTwoLengths reports whether a request has both Content-Length and Transfer-Encoding. fasthttp accepts that and drops the first, so
// hasTwoLengths reads the raw header.
func hasTwoLengths(request *fasthttp.RequestHeader) bool {
	var length, encoding bool
	for line := range bytes.Lines(request.RawHeaders()) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		length = length || bytes.EqualFold(name, []byte("Content-Length"))
		encoding = encoding || bytes.EqualFold(name, []byte("Transfer-Encoding"))
	}
	return length && encoding
}

// refuseUnreadable responds to a request that fasthttp could not read. fasthttp closes the connection afterwards.
func (s *server) refuseUnreadable(ctx *fasthttp.RequestCtx, err error) {
	seen := partialRequest(ctx)
	s.setCommonHeaders(ctx, []byte(seen.ID), false) // fasthttp closes the connection anyway
	var small *fasthttp.ErrSmallBuffer
	var network net.Error
	p := &unreadable
	switch {
	case errors.As(err, &small):
		p = &longHeader
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		p = &longBody
	case errors.As(err, &network) && network.Timeout():
		p = &tooSlow
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding) && !seen.Old:
		p = &wrongCoding
	}
	refuseAt(ctx, p, seen.Path, seen.ID)
	s.requests.add(ctx.ConnID(), kindNone, p.status)
}

// partialRequest returns what is known of a request that fasthttp could not read completely.
func partialRequest(ctx *fasthttp.RequestCtx) wire.Request {
	if len(ctx.Request.Header.Host()) > 0 {
		return wire.Request{Path: pathSent(ctx), ID: sentID(ctx)}
	}
	if c, ok := ctx.Conn().(*conn.Conn); ok {
		return c.Request()
	}
	return wire.Request{}
}

var errStopping = errors.New("stopping")

// ready returns nil while this edge should get requests: it holds a lease and is not stopping.
func (s *server) ready() error {
	if s.draining.Load() {
		return errStopping
	}
	return s.links.Ready()
}

// drain makes /readyz fail, and closes each connection after its next response.
func (s *server) drain() { s.draining.Store(true) }

// shutdown stops accepting connections and waits until the running requests are answered or ctx ends. It closes ln too: fasthttp closes
// it only if Serve has started.
func (s *server) shutdown(ctx context.Context, ln net.Listener) error {
	_ = ln.Close() // fails if it is closed already
	if err := s.http.ShutdownWithContext(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("requests were cut off: %w", err)
	}
	return nil
}
