package main

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
	// versionHeader names the version of the interface on every answer (decisions.md 9).
	versionHeader = "Deeplink-Version"
	version       = "1"

	// requestTimeout bounds the work on one request. It is longer than a lease of the usual length, so that a barrier can end by itself.
	requestTimeout = 10 * time.Second

	// statusClientGone is logged for a client that hung up before its answer; it is never sent.
	statusClientGone = 499
)

// exchange is one request with its answer, as the log line and the envelope know it. It is the ResponseWriter of
// everything behind begin.
type exchange struct {
	http.ResponseWriter
	// client ends when the client hangs up. The request's own context ends with the time for its work too.
	client context.Context
	// requestID is on the answer and in the log; fromClient tells whether the client sent it.
	requestID  string
	fromClient bool
	// organizationID, and keyID or subject, are empty until the credential is known.
	organizationID, keyID, subject string
	// actor is who makes the changes of this request. It is set for a handler that was let through.
	actor store.Actor
	// link is the one that the path names, if it was read together with the key; nil says nothing.
	link *catalog.LinkWithDomain
	// status is what was sent, 0 before.
	status int
}

// WriteHeader notes the status.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implies status 200, as net/http has it.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return x.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// handler answers a request, or returns an error which errors.go turns into an answer.
type handler func(x *exchange, r *http.Request) error

// answer makes an http.HandlerFunc of h. It stands behind begin.
func (s *server) answer(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		if err := h(x, r); err != nil {
			s.refuse(x, r, err)
		}
	}
}

// begin makes the exchange and sets the headers which every answer has.
func begin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{ResponseWriter: w, client: r.Context(), requestID: r.Header.Get(requestid.Header)}
		// Of two ids neither is believed.
		x.fromClient = len(r.Header.Values(requestid.Header)) == 1 && requestid.Valid(x.requestID)
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

// observe writes the log line and counts, once the answer is complete. Only what is listed here and in about is ever logged of a
// request: no header, no body, no query, no path.
func (s *server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
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
				slog.String("method", known(r.Method)),
				slog.String("route", route),
				slog.Int("status", status),
				slog.Float64("ms", float64(took.Microseconds())/1000),
			}, s.about(x, r)...)
			s.log.LogAttrs(r.Context(), slog.LevelInfo, "request", attributes...)
		}()
		next.ServeHTTP(w, r)
	})
}

// client returns the address of the request (decisions.md 8). It is the zero one when the connection has none.
func (s *server) client(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	var forwardedFor [][]byte
	for _, line := range r.Header.Values(clientip.Header) {
		forwardedFor = append(forwardedFor, []byte(line))
	}
	return s.proxies.Client(peer.Addr(), forwardedFor)
}

// survive turns a panic into a 500, logged once with its stack.
func (s *server) survive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler {
				panic(cause)
			}
			x := w.(*exchange)
			s.log.LogAttrs(r.Context(), slog.LevelError, "panic", append(s.about(x, r),
				slog.String("cause", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))...)
			if x.status != 0 {
				// Half an answer is out: only cutting it off tells the client.
				panic(http.ErrAbortHandler)
			}
			x.refuse(r, internal)
		}()
		next.ServeHTTP(w, r)
	})
}

// bound ends the work on a request after requestTimeout.
func bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// plain lets only requests through whose target can be understood in one way: in origin form (RFC 9112, 3.2.1), without
// empty or dot segments and without an encoded slash. Nothing is ever cleaned or redirected.
func (s *server) plain(next http.Handler) http.Handler {
	return s.answer(func(x *exchange, r *http.Request) error {
		if r.ProtoMajor != 1 {
			return errVersion // the preface of HTTP/2, which net/http hands on; it closes the connection
		}
		if err := checkLength(x, r); err != nil {
			return err
		}
		if r.URL.IsAbs() || r.URL.Host != "" {
			return errAbsoluteTarget
		}
		if r.URL.Path != "/" && !isPlain(r.URL.EscapedPath()) {
			return errNoRoute
		}
		next.ServeHTTP(x, r)
		return nil
	})
}

// isPlain reports whether each segment of the path is there and is not, however encoded, a dot segment or two segments.
func isPlain(path string) bool {
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
