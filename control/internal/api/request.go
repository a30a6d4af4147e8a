package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
	"deeplink/shared/requestid"
)

const (
	// versionHeader names the version of the interface on every response.
	versionHeader = "Deeplink-Version"
	version       = "1"

	// requestTimeout bounds the work on a read. It is longer than a usual lease, so that a wait for the edges can end normally.
	requestTimeout = 10 * time.Second

	// statusClientGone is logged when the client disconnected before the response. It is never sent.
	statusClientGone = 499
)

// requestState is one request and its response, with what the log line and the error envelope need. It is the ResponseWriter of all handlers
// behind requestID.
type requestState struct {
	http.ResponseWriter
	// client ends when the client disconnects. The context of a read ends with it, and after requestTimeout.
	client context.Context
	// detached is set for a write: a context with the values of the request that never ends. end ends the current context of the write. Both
	// are nil for a read.
	detached context.Context
	end      context.CancelFunc
	// requestID is in the response and in the log. fromClient reports whether the client sent it.
	requestID  string
	fromClient bool
	// organizationID, and keyID or subject, are empty before authentication.
	organizationID, keyID, subject string
	// actor makes the changes of this request. It is set after authorization.
	actor store.Actor
	// require is what the route demands of the organization. The request met it on arrival. Writes check it again in their transaction, because
	// the plan may have changed since. It is set with actor.
	require store.Requirement
	// linkRead reports whether the lookup of the API key also read the link in the path. link is nil if there is none.
	linkRead bool
	link     *catalog.LinkWithDomain
	// status is the status that was sent, 0 before.
	status int
}

// WriteHeader implements http.ResponseWriter and records the status.
func (x *requestState) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. Without a status it implies 200.
func (x *requestState) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return x.ResponseWriter.Write(b)
}

// Unwrap implements the interface that http.ResponseController looks for.
func (x *requestState) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// handler handles a request, or returns an error, which errors.go turns into a response.
type handler func(x *requestState, r *http.Request) error

// handle returns h as an http.HandlerFunc. requestID must run before it.
func (s *Server) handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := w.(*requestState)
		if err := h(x, r); err != nil {
			s.respondError(x, r, err)
		}
	}
}

// requestID creates the requestState, and sets the headers that every response has.
func requestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &requestState{ResponseWriter: w, client: r.Context(), requestID: requestid.Sent(r.Header.Values(requestid.Header))}
		x.fromClient = x.requestID != ""
		if !x.fromClient {
			x.requestID = requestid.New()
		}
		header := w.Header()
		header.Set(requestid.Header, x.requestID)
		header.Set(versionHeader, version)
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(x, r)
	})
}

// accessLog writes the log line and counts the request, once the response is complete. It logs nothing of a request except what is listed here
// and in logAttributes: no header, no body, no query, no path.
func (s *Server) accessLog(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := w.(*requestState)
		began := time.Now()
		s.metrics.inFlight.Inc()
		defer func() {
			s.metrics.inFlight.Dec()
			took := time.Since(began)
			route := chi.RouteContext(r.Context()).RoutePattern()
			if route == "" {
				route = "none"
			}
			status := x.status
			if status == 0 {
				status = statusClientGone
			}
			s.metrics.observe(route, r.Method, status, took)
			attributes := append([]slog.Attr{
				slog.String("method", knownMethod(r.Method)),
				slog.String("route", route),
				slog.Int("status", status),
				slog.Float64("ms", float64(took.Microseconds())/1000),
			}, s.logAttributes(x, r)...)
			s.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", attributes...)
		}()
		next.ServeHTTP(w, r)
	})
}

// client returns the client address of the request: the peer, or behind trusted proxies the right-most address of X-Forwarded-For that is not
// theirs. It is the zero address when the connection has none.
func (s *Server) client(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	var forwardedFor [][]byte
	for _, line := range r.Header.Values(clientip.Header) {
		forwardedFor = append(forwardedFor, []byte(line))
	}
	return s.Proxies.Client(peer.Addr(), forwardedFor)
}

// recoverer turns a panic into a 500, logged once with its stack.
func (s *Server) recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler {
				panic(cause)
			}
			x := w.(*requestState)
			s.Log.LogAttrs(r.Context(), slog.LevelError, "panic", append(s.logAttributes(x, r),
				slog.String("cause", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))...)
			if x.status != 0 {
				// Part of the response was sent. Cutting it off is the only way to tell the client.
				panic(http.ErrAbortHandler)
			}
			x.sendProblem(r, internal)
		}()
		next.ServeHTTP(w, r)
	})
}

// timeout bounds the work on a request. A read ends after requestTimeout, or when its client disconnects. A write ends store.WriteTimeout after
// its body was read, even when its client disconnects: the client cannot know the result, and a committed change must still reach the edges.
func timeout(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		x := w.(*requestState)
		x.detached = context.WithoutCancel(r.Context())
		ctx, cancel := context.WithTimeout(x.detached, store.WriteTimeout)
		x.end = cancel
		defer func() { x.end() }()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// bodyRead restarts the timeout of a write once its body has been read, because the client decides how long the body takes. r is the request
// that timeout passed to the handlers; it gets the new context.
func (x *requestState) bodyRead(r *http.Request) {
	if x.detached == nil {
		return
	}
	x.end()
	ctx, cancel := context.WithTimeout(x.detached, store.WriteTimeout)
	x.end = cancel
	*r = *r.WithContext(ctx)
}

// strictPath refuses request targets that programs can read in different ways. A target must have the origin form (RFC 9112, 3.2.1), no empty
// or dot segments, and no encoded slash. The server never cleans or redirects a path.
func (s *Server) strictPath(next http.Handler) http.Handler {
	return s.handle(func(x *requestState, r *http.Request) error {
		if r.ProtoMajor != 1 {
			return errVersion // net/http passes the preface of HTTP/2 to the handler, and closes the connection
		}
		if err := checkLength(x, r); err != nil {
			return err
		}
		if r.URL.IsAbs() || r.URL.Host != "" {
			return errAbsoluteTarget
		}
		if path := r.URL.EscapedPath(); r.URL.Path != "/" && !isStrict(path) && !endsInExternalID(path) {
			return errNoRoute
		}
		next.ServeHTTP(x, r)
		return nil
	})
}

// endsInExternalID reports whether the path is that of a link by its external id, so that the route refuses "." and ".." with the other bad
// values.
func endsInExternalID(path string) bool {
	folder, segment := path[:strings.LastIndexByte(path, '/')+1], path[strings.LastIndexByte(path, '/')+1:]
	folded := strings.ToLower(segment)
	return (folder == externalPrefix || folder == portalPrefix+externalPrefix) && segment != "" &&
		!strings.Contains(folded, "%2f") && !strings.Contains(folded, "%5c")
}

// isStrict reports whether no segment of the path is empty, a dot segment, or contains an encoded slash.
func isStrict(path string) bool {
	path, rooted := strings.CutPrefix(path, "/")
	if !rooted {
		return false
	}
	for segment := range strings.SplitSeq(path, "/") {
		folded := strings.ToLower(segment)
		switch strings.ReplaceAll(folded, "%2e", ".") {
		case "", ".", "..":
			return false
		}
		if strings.Contains(folded, "%2f") || strings.Contains(folded, "%5c") {
			return false
		}
	}
	return true
}
