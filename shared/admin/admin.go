// Package admin is the private listener that both programs have for their operator: health, readiness, metrics and
// profiles. It has no authentication and belongs on an address that the public cannot reach.
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
	// shutdownTimeout is short: nobody loses anything when a scrape is cut off.
	shutdownTimeout = time.Second
)

// Serve answers on ln until ctx ends and then returns nil within a second; it closes ln. Otherwise it returns why
// serving failed. ready is called for each /readyz, by several goroutines at once: its error is the reason that the
// operator reads.
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

// readOnly answers 405 to everything but GET and HEAD. The mux could do so itself, but not with an envelope.
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

// identify gives every response an X-Request-Id.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestid.Header)
		if !requestid.Valid(id) {
			r.Header.Del(requestid.Header)
			id = requestid.New()
		}
		w.Header().Set(requestid.Header, id)
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
	// A reader that is gone is nobody's error.
	_, _ = w.Write(body)
}
