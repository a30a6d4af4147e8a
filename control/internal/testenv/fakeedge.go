package testenv

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"deeplink/control/internal/edgeclient"
	"deeplink/control/internal/store"
)

// CanaryMetric returns a metric of the canary from the text that Prometheus scrapes, -1 when it is absent. The name is without its prefix.
func CanaryMetric(exposed, name string) float64 {
	_, after, _ := strings.Cut(exposed, "\ndeeplink_control_canary_"+name+" ")
	line, _, _ := strings.Cut(after, "\n")
	value, err := strconv.ParseFloat(line, 64)
	if err != nil {
		return -1
	}
	return value
}

// CanaryLinks returns the short codes of the canary's organization, separated by commas.
func (w *Env) CanaryLinks() (codes string) {
	w.T.Helper()
	err := w.Pool.QueryRow(context.Background(), `
		select coalesce(string_agg(l.short_code, ',' order by l.short_code), '') from links l join organizations o on o.id = l.organization_id where o.external_id = $1`,
		store.CanaryOrganization).Scan(&codes)
	if err != nil {
		w.T.Fatal(err)
	}
	return codes
}

// FakeEdge registers a server as an edge whose lease is over at once, so that control does not wait for it.
func (w *Env) FakeEdge(handler http.HandlerFunc) {
	w.T.Helper()
	server := httptest.NewServer(handler)
	w.T.Cleanup(server.Close)
	w.RegisterEdge(server.Listener.Addr().String())
}

// RegisterEdge registers an edge at address whose lease is over at once.
func (w *Env) RegisterEdge(address string) {
	w.T.Helper()
	w.Exec(`insert into edges (slot, incarnation, lease_ms, hold_ms, address) values ($1, gen_random_uuid(), 1, 1, $1)`, address)
}

// Resolve returns the response to a click from the database, as an edge without a cache.
func (w *Env) Resolve(r *http.Request) edgeclient.Response {
	var target string
	err := w.Pool.QueryRow(context.Background(), `
		select l.fallback_url from links l join organizations o on o.id = l.organization_id where '/' || o.org_key || '/' || l.short_code = $1`,
		r.URL.Path).Scan(&target)
	if errors.Is(err, pgx.ErrNoRows) {
		return edgeclient.NotFound
	}
	if err != nil {
		w.T.Error(err)
	}
	return edgeclient.RedirectTo(target)
}

// WriteResponse writes a response as an edge does.
func WriteResponse(rw http.ResponseWriter, a edgeclient.Response) {
	rw.Header().Set(edgeclient.VersionHeader, edgeclient.Version)
	if a.Location != "" {
		rw.Header().Set("Location", a.Location)
	}
	rw.WriteHeader(a.Status)
}

// StaleEdge is a broken edge: it keeps every response of one status in its cache for ever.
type StaleEdge struct {
	env    *Env
	status int

	mu       sync.Mutex
	kept     map[string]edgeclient.Response
	Requests []*http.Request
}

// ServeHTTP implements http.Handler.
func (s *StaleEdge) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Requests = append(s.Requests, r)
	a, known := s.kept[r.URL.Path]
	if !known {
		if a = s.env.Resolve(r); a.Status == s.status {
			s.kept[r.URL.Path] = a
		}
	}
	WriteResponse(rw, a)
}

// NewStaleEdge registers an edge that keeps responses of the status. With status 0 it works.
func (w *Env) NewStaleEdge(status int) *StaleEdge {
	s := &StaleEdge{env: w, status: status, kept: make(map[string]edgeclient.Response)}
	w.FakeEdge(s.ServeHTTP)
	return s
}
