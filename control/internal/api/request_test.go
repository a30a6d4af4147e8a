package api

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"deeplink/shared/ratelimit"
)

// testServer is a server without backends, for handlers that need none.
func testServer(log io.Writer) *Server {
	limiter := ratelimit.New(nil, ratelimit.LinkReads)
	return &Server{Options: Options{Log: slog.New(slog.NewTextHandler(log, nil))}, metrics: newMetrics(limiter)}
}

// withAccessLog is accessLog as it runs: inside a router.
func (s *Server) withAccessLog(next http.Handler) http.Handler {
	router := chi.NewRouter()
	router.Use(s.accessLog)
	router.Handle("/*", next)
	return router
}

// record serves one request without a network.
func record(t testing.TB, handler http.Handler, method, target string) reply {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(method, target, nil))
	return reply{Status: recorder.Code, Header: recorder.Header(), Body: recorder.Body.Bytes()}
}

func TestAbortedResponsesCloseTheConnection(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]handler{
		"an abort":        func(*requestState, *http.Request) error { panic(http.ErrAbortHandler) },
		"half a response": func(x *requestState, _ *http.Request) error { x.Write([]byte(`{`)); panic("half way") },
	} {
		log := new(logBuffer)
		s := testServer(log)
		server := httptest.NewUnstartedServer(requestID(s.withAccessLog(s.recoverer(s.handle(answer)))))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		server.Start()
		response, err := server.Client().Get(server.URL)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		server.Close()
		if err == nil {
			t.Errorf("%s: arrived as if complete", name)
		}
		if panics := strings.Count(log.String(), "msg=panic"); panics > 0 != (name == "half a response") {
			t.Errorf("%s: %d panics in the log:\n%s", name, panics, log)
		}
	}
}

func TestDisconnectedClientGetsNoResponse(t *testing.T) {
	t.Parallel()
	log := new(logBuffer)
	s := testServer(log)
	handler := requestID(s.withAccessLog(s.recoverer(timeout(s.handle(func(_ *requestState, r *http.Request) error { return r.Context().Err() })))))
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	recorder := httptest.NewRecorder()
	aborted := func() (cause any) {
		defer func() { cause = recover() }()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, "GET", "/links", nil))
		return nil
	}()
	if aborted != http.ErrAbortHandler { // A return would make net/http send a 200 to a client that closed only its sending side.
		t.Errorf("ended with %v, expected http.ErrAbortHandler", aborted)
	}
	if recorder.Body.Len() != 0 || !strings.Contains(log.String(), "status=499") || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("sent %q, logged:\n%s\nexpected no response, and one line with status 499", recorder.Body, log)
	}
}

func TestSlowWorkIsCanceled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testServer(io.Discard)
		began := time.Now()
		r := record(t, requestID(s.withAccessLog(timeout(s.handle(func(_ *requestState, r *http.Request) error {
			<-r.Context().Done()
			return fmt.Errorf("wrapped: %w", r.Context().Err())
		})))), "GET", "/links")
		if took := time.Since(began); r.Status != http.StatusServiceUnavailable || took != requestTimeout {
			t.Errorf("%s after %v, expected 503 after %v", r, took, requestTimeout)
		}
	})
}
