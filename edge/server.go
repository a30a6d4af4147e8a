package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/replica"
	"deeplink/shared/clientip"
	"deeplink/shared/envelope"
	"deeplink/shared/matchtoken"
	"deeplink/shared/ratelimit"
	"deeplink/shared/requestid"
	"deeplink/shared/wire"
)

// The bounds of a connection (decisions.md 9). A deadline may fall a second later than these say.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 10 * time.Second
	idleTimeout  = time.Minute
	maxHeader    = 8 << 10
	writeBuffer  = 8 << 10 // most pages leave in one system call
	maxBody      = 16 << 10
)

// maxClients is how many addresses the rate limit remembers. One that sends as fast as it may takes 4 KiB.
const maxClients = 1 << 16

// everyAnswer are the headers of every answer, up to the value of the last one. Nothing may be kept by anyone: what delete must stop
// must not live on in a cache below the edge. fasthttp writes a canonical name as it is given, so that one that spans lines sets
// them all at once; one by one they would take a quarter of the time of a click.
var (
	everyAnswer = []byte("Referrer-Policy: strict-origin-when-cross-origin\r\n" +
		"X-Content-Type-Options: nosniff\r\n" +
		"Vary: User-Agent, Sec-CH-UA-Platform\r\n" +
		"Cache-Control: private, no-store\r\n" +
		"Deeplink-Version: 1\r\n" +
		requestid.Header)
	requestIDHeader  = []byte(requestid.Header)
	locationHeader   = []byte("Location")
	connectionHeader = []byte("Connection")
)

// server answers the public address.
type server struct {
	http      *fasthttp.Server
	hosts     hosts
	proxies   clientip.Proxies
	limiter   *ratelimit.Memory
	links     *replica.Replica
	tokens    *matchtoken.Keys // nil: there are none
	matches   *matches
	pages     *errorPages
	agents    *agents
	requests  requests
	latencies latencies
	log       *slog.Logger
	verbose   bool // each request is logged
	draining  atomic.Bool
}

func newServer(c *options, links *replica.Replica, pages *errorPages, matches *matches, log *slog.Logger) *server {
	s := &server{
		hosts: newHosts(c.LinkBaseURL, c.ExtraHosts), proxies: c.TrustedProxies.Proxies,
		limiter: ratelimit.NewMemory(ratelimit.Resolution, maxClients), links: links, tokens: c.MatchTokenKeys.keys(), matches: matches,
		pages: pages, agents: newAgents(), latencies: newLatencies(), log: log, verbose: log.Enabled(context.Background(), slog.LevelDebug),
	}
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.refuseUnread,
		Logger:                       quiet{log},
		SecureErrorLogMessage:        true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		ReadBufferSize:               maxHeader,
		WriteBufferSize:              writeBuffer,
		MaxRequestBodySize:           maxBody,
		ExpectHandler:                s.expect,
		Concurrency:                  2 * maxConnections, // never reached: the listener turns away first
	}
	return s
}

// handle answers one request. Nothing that happens on the way can end the process.
func (s *server) handle(ctx *fasthttp.RequestCtx) {
	s.identify(ctx, sentID(ctx))
	if c, ok := ctx.Conn().(*conn); ok {
		c.head.Answered()
	}
	kind := s.survive(ctx)
	s.requests.add(ctx.ConnID(), kind, ctx.Response.StatusCode())
	s.latencies.sample(ctx.ConnRequestNum(), kind, ctx.Time())
	if s.verbose {
		s.trace(ctx, kind)
	}
}

// identify sets the headers that every answer has. id is that which the client sent, if any.
func (s *server) identify(ctx *fasthttp.RequestCtx, id []byte) {
	var fresh [36]byte
	if len(id) == 0 {
		id = requestid.Append(fresh[:0])
	}
	ctx.Response.Header.SetCanonical(everyAnswer, id)
	// fasthttp says so itself only while it shuts down, when clients have no time left to hear it.
	if s.draining.Load() || isLast(&ctx.Request.Header) {
		ctx.SetConnectionClose()
	}
}

// isLast reports whether the client says that nothing follows. fasthttp knows but one of the ways to write that.
func isLast(request *fasthttp.RequestHeader) bool {
	options := request.PeekCanonical(connectionHeader)
	if len(options) == 0 || string(options) == "keep-alive" {
		return false
	}
	for option := range bytes.SplitSeq(options, []byte(",")) {
		if bytes.EqualFold(bytes.TrimSpace(option), []byte("close")) {
			return true
		}
	}
	return false
}

// answerID returns the id that the answer carries.
func answerID(ctx *fasthttp.RequestCtx) []byte {
	return ctx.Response.Header.PeekCanonical(everyAnswer)
}

// survive turns a panic into a 500, logged once with its stack.
func (s *server) survive(ctx *fasthttp.RequestCtx) (k kind) {
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error("panic", s.about(ctx),
				slog.String("cause", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
			ctx.Response.Header.DelBytes(locationHeader)
			refuse(ctx, &internal)
		}
	}()
	return s.answer(ctx)
}

// answer finds out what is asked for and has it answered.
func (s *server) answer(ctx *fasthttp.RequestCtx) kind {
	request := &ctx.Request.Header
	var buf [maxKey]byte
	to := s.hosts.route(buf[:0], request.Host(), request.RequestURI())
	if to.kind == kindData || to.kind == kindMatch {
		shareWithScripts(ctx)
	}
	switch {
	case !request.IsHTTP11() && !bytes.HasPrefix(request.Protocol(), []byte("HTTP/1.")):
		refuse(ctx, &wrongVersion) // fasthttp closes the connection
	case request.ContentLength() != noBody && isExpecting(request):
		ctx.SetConnectionClose()
		refuse(ctx, &wrongExpectation)
	case request.ContentLength() != noBody && hasTwoLengths(request):
		// Somebody in between may have seen another end of this request than we did.
		ctx.SetConnectionClose()
		refuse(ctx, &twoLengths)
	case to.refused != nil:
		refuse(ctx, to.refused)
	case to.kind == kindData && request.IsOptions():
		permit(ctx, "GET, HEAD")
	case to.kind == kindMatch && request.IsOptions():
		permit(ctx, "POST")
	case to.kind == kindMatch && !request.IsPost(), to.kind != kindMatch && !request.IsGet() && !request.IsHead():
		allow(ctx, to.kind)
		refuse(ctx, &wrongMethod)
	default:
		s.dispatch(ctx, &to)
	}
	return to.kind
}

func (s *server) dispatch(ctx *fasthttp.RequestCtx, to *route) {
	switch to.kind {
	case kindLink, kindData:
		s.resolve(ctx, to)
	case kindMatch:
		s.match(ctx)
	case kindHealth:
		// This process serves. Whether it should be sent requests is said by /readyz on the admin address.
		ctx.SetContentType(envelope.ContentType)
		ctx.SetBodyString(`{"status":"ok"}`)
	case kindRobots:
		// Link previews of some networks do not look at what robots may not.
		ctx.SetContentType("text/plain; charset=utf-8")
		ctx.SetBodyString("User-agent: *\nDisallow:\n")
	case kindFavicon:
		ctx.SetStatusCode(fasthttp.StatusNoContent)
	case kindWellKnown:
		s.associate(ctx, to)
	}
}

func allow(ctx *fasthttp.RequestCtx, k kind) {
	methods := "GET, HEAD"
	switch k {
	case kindData:
		methods = "GET, HEAD, OPTIONS"
	case kindMatch:
		methods = "POST, OPTIONS"
	}
	ctx.Response.Header.Set("Allow", methods)
}

// noBody is what fasthttp gives for the length of a request that names none.
const noBody = -2

// expect answers Expect: 100-continue: fasthttp says "continue", unless that would only fetch what is refused then. HTTP/1.0 does not know
// that there is something to come (RFC 9110, 10.1.1).
func (s *server) expect(ctx *fasthttp.RequestCtx) int {
	p := &longBody
	switch request := &ctx.Request.Header; {
	case !request.IsHTTP11():
		p = &wrongExpectation
	case request.ContentLength() <= maxBody:
		return fasthttp.StatusContinue
	}
	s.identify(ctx, sentID(ctx))
	refuse(ctx, p)
	s.requests.add(ctx.ConnID(), kindNone, p.status)
	return p.status
}

// isExpecting reports whether a request expects anything but 100-continue, which fasthttp has answered. Without a body there is nothing
// to expect.
func isExpecting(request *fasthttp.RequestHeader) bool {
	for _, expected := range request.PeekAll("Expect") {
		if !bytes.EqualFold(expected, []byte("100-continue")) {
			return true
		}
	}
	return false
}

// hasTwoLengths reports whether a request has both Content-Length and Transfer-Encoding. fasthttp lets that pass and forgets the
// first, so the raw header is read.
func hasTwoLengths(request *fasthttp.RequestHeader) bool {
	var length, encoding bool
	for line := range bytes.Lines(request.RawHeaders()) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		length = length || bytes.EqualFold(name, []byte("Content-Length"))
		encoding = encoding || bytes.EqualFold(name, []byte("Transfer-Encoding"))
	}
	return length && encoding
}

// refuseUnread answers what fasthttp could not read; it closes the connection after that.
func (s *server) refuseUnread(ctx *fasthttp.RequestCtx, err error) {
	seen := begun(ctx)
	s.identify(ctx, []byte(seen.ID))
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

// begun returns what is known of a request that fasthttp could not read to its end, or not at all.
func begun(ctx *fasthttp.RequestCtx) wire.Request {
	if len(ctx.Request.Header.Host()) > 0 {
		return wire.Request{Path: pathSent(ctx), ID: string(sentID(ctx))}
	}
	if c, ok := ctx.Conn().(*conn); ok {
		return c.head.Request()
	}
	return wire.Request{}
}

// trace logs a request. Only what is listed here and in about is ever logged of one: no header, no query, no path, no address.
func (s *server) trace(ctx *fasthttp.RequestCtx, k kind) {
	s.log.Debug("request", slog.String("kind", kindNames[k]), slog.Int("status", ctx.Response.StatusCode()),
		slog.Float64("ms", float64(time.Since(ctx.Time()).Microseconds())/1000), s.about(ctx))
}

var errStopping = errors.New("stopping")

// ready returns nil while this edge should be sent requests: it holds a lease and is not about to end.
func (s *server) ready() error {
	if s.draining.Load() {
		return errStopping
	}
	return s.links.Ready()
}

// drain gives readiness up and has each connection closed with its next answer.
func (s *server) drain() { s.draining.Store(true) }

// shutdown stops accepting and returns when the requests under way are answered, or when ctx ends. ln is closed here too:
// fasthttp closes it only once Serve has begun.
func (s *server) shutdown(ctx context.Context, ln net.Listener) error {
	_ = ln.Close() // fasthttp closes it again, or did
	if err := s.http.ShutdownWithContext(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("requests were cut off: %w", err)
	}
	return nil
}

// quiet takes fasthttp's log lines. They are about connections that broke; their arguments hold what clients sent, which is
// not logged.
type quiet struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (q quiet) Printf(format string, _ ...any) {
	q.log.Debug("connection", slog.String("event", format))
}
