package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"deeplink/control/internal/keyguard"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

func TestMadeUpKeysCostFewQueriesWhileValidKeysOfTheirAddressWork(t *testing.T) {
	t.Parallel()
	const madeUp = 10_000
	w := newTestEnv(t)
	s := w.server()
	traced, asked := w.traced()
	s.Store, s.SDK, s.keys = traced, traced, keyguard.New(traced.ValidKeys)
	handler, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	// httptest sends all requests from one address.
	send := func(method, path, key string) reply {
		request := httptest.NewRequest(method, path, strings.NewReader(""))
		request.Header.Set("Authorization", "Bearer "+key)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return reply{Status: recorder.Code, Header: recorder.Header(), Body: recorder.Body.Bytes()}
	}
	expect := func(what string, r reply, status int) {
		if r.Status != status {
			t.Errorf("%s: %s, expected %d", what, r, status)
		}
	}
	used, unused, replaced := w.Organization(catalog.Growth), w.Organization(catalog.Growth), w.Organization(catalog.Growth)
	expect("a valid key before", send("GET", "/links", *used.ServerKey), http.StatusOK)

	asked.take()
	began := time.Now()
	var flood sync.WaitGroup
	for i := range madeUp {
		flood.Go(func() {
			tier, method, path := apikey.Server, "GET", "/links"
			if i%2 > 0 {
				tier, method, path = apikey.Client, "POST", "/sdk/session"
			}
			expect("a made-up key", send(method, path, apikey.New(tier)), http.StatusUnauthorized)
		})
	}
	expect("a key that was used before", send("GET", "/links", *used.ServerKey), http.StatusOK)
	expect("a key that was never used", send("GET", "/links", *unused.ServerKey), http.StatusOK)
	expect("a key of the wrong tier that was never used", send("GET", "/links", *unused.ClientKey), http.StatusForbidden)
	fresh := w.APIKey(replaced.ID, apikey.Server) // from another store, as another control would
	expect("a key that another control just made", send("GET", "/links", fresh), http.StatusOK)
	if _, err := w.Store.ReplaceKey(t.Context(), testenv.Actor, used.ID, store.Unconditional, apikey.Server, 0); err != nil {
		t.Fatal(err)
	}
	expect("a key in use that another control just replaced", send("GET", "/links", *used.ServerKey), http.StatusUnauthorized)
	flood.Wait()
	took := time.Since(began)

	sql := asked.take()
	const ofValidKeys = 2 * 5                                                                         // a lookup and a list each
	most := ofValidKeys + keyguard.AddressLookups + int(took/time.Minute+1)*keyguard.AddressLookups + // single lookups
		int(took/keyguard.BatchInterval) + madeUp/1000 // batches
	t.Logf("%d made-up keys in %s took %d queries", madeUp, took, len(sql)-ofValidKeys)
	if len(sql) > most {
		t.Errorf("%d made-up keys in %s took %d queries, expected at most %d", madeUp, took, len(sql), most)
	}
}

func TestKeyRegeneratedOnAnotherControlWorksAtOnceBehindAFloodOfMadeUpKeys(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	o := w.Tenant(catalog.Growth)
	controls := []*process{p.serve(), p.serve()}
	for _, control := range controls {
		counts, _ := burst(5*keyguard.AddressLookups, func(int) reply { return control.client(apikey.New(apikey.Server)).Do("GET", "/links", "") })
		if counts[http.StatusUnauthorized] != 5*keyguard.AddressLookups {
			t.Fatalf("made-up keys: %v, expected 401", counts)
		}
		if n := control.Counted(t, "key_batches_total"); n == 0 {
			t.Fatalf("no key waited for a batch, because the address has lookups left")
		}
	}
	previous := *o.ServerKey
	for i := range 4 {
		key := p.as(controls[i%2], o, "admin").regenerate("")
		accept(t, fmt.Sprintf("round %d, the new key", i), controls, true, key)
		accept(t, fmt.Sprintf("round %d, the old key", i), controls, false, previous)
		previous = key
	}
}
