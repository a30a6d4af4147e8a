// Package admin serves health, readiness, metrics and profiles of both programs to their operator. It has no authentication: bind it to an
// address that the public cannot reach.
package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"deeplink/shared/envelope"
	"deeplink/shared/requestid"
)

const (
	// writeTimeout leaves room for a CPU profile of a minute.
	writeTimeout = 90 * time.Second
	// shutdownTimeout is short, because an interrupted scrape does no harm.
	shutdownTimeout = time.Second
)

// Serve serves on ln until ctx ends, then closes ln and returns nil within a second. It returns an error if serving fails. It calls ready
// for each /readyz, concurrently; the text of its error is the response to the operator.
func Serve(ctx context.Context, ln net.Listener, ready func() error, metrics *prometheus.Registry) error {
	server := &http.Server{
		Handler:           handler(ready, metrics),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func handler(ready func() error, metrics *prometheus.Registry) http.Handler {
	routes := map[string]http.HandlerFunc{
		"/healthz": func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
		},
		"/readyz": func(w http.ResponseWriter, r *http.Request) {
			if err := ready(); err != nil {
				fail(w, r, http.StatusServiceUnavailable, err.Error())
				return
			}
			writeJSON(w, http.StatusOK, []byte(`{"status":"ready"}`))
		},
		"/metrics": promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}).ServeHTTP,
		// Index answers the named profiles too.
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
	}
	mux := http.NewServeMux()
	for path, route := range routes {
		mux.HandleFunc(path, readOnly(route))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, http.StatusNotFound, "Route not found")
	})
	return identify(mux)
}

// readOnly responds with 405 to methods other than GET and HEAD. The mux could do this, but without an envelope.
func readOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, r, http.StatusMethodNotAllowed, "Method not allowed")
			return
		}
		next(w, r)
	}
}

// identify gives every response an X-Request-Id and the version header of both programs. net/http itself answers what it cannot parse, in
// plain text: only the operator's own tools reach this address.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := requestid.Sent(r.Header.Values(requestid.Header))
		if id == "" {
			r.Header.Del(requestid.Header)
			id = requestid.New()
		}
		w.Header().Set(requestid.Header, id)
		w.Header().Set("Deeplink-Version", "1")
		next.ServeHTTP(w, r)
	})
}

func fail(w http.ResponseWriter, r *http.Request, code int, message string) {
	e := envelope.New(code, message, r.URL.Path, r.Header.Get(requestid.Header), time.Now())
	writeJSON(w, code, e.JSON())
}

func writeJSON(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", envelope.ContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// A failed write means that the client has disconnected.
	_, _ = w.Write(body)
}
