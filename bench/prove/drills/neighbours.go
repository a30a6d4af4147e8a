package drills

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

// call is a request to control with an API key of a tenant.
type call struct{ key, method, path, body string }

// apiClient sends requests to the controls in turn, over as many connections as there are concurrent requests.
type apiClient struct {
	controls []string
	http     *http.Client
}

// newAPIClient returns a client of the fleet's controls. close ends its idle connections.
func newAPIClient(f *fleet.Fleet) (c *apiClient, close func()) {
	c = &apiClient{http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}}
	for _, control := range f.Controls {
		c.controls = append(c.controls, control.Addr)
	}
	return c, c.http.CloseIdleConnections
}

// send sends the n-th request and counts its response.
func (c *apiClient) send(ctx context.Context, n int, what call, counted *visitor.Visits) {
	began := time.Now()
	status, err := c.status(ctx, c.controls[n%len(c.controls)], what)
	if ctx.Err() == nil {
		counted.Count(began, status, err)
	}
}

func (c *apiClient) status(ctx context.Context, control string, what call) (int, error) {
	request, err := http.NewRequestWithContext(ctx, what.method, "http://"+control+what.path, strings.NewReader(what.body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+what.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, err
	}
	return response.StatusCode, nil
}

// at sends calls in turn at a steady rate, however long their responses take, until ctx ends. Then it waits for those in progress.
func (c *apiClient) at(ctx context.Context, every time.Duration, calls []call, counted *visitor.Visits) {
	var sent sync.WaitGroup
	defer sent.Wait()
	pace := time.NewTicker(every)
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		sent.Go(func() { c.send(context.WithoutCancel(ctx), n, calls[n%len(calls)], counted) })
	}
}

// neighbours are tenants with everyday requests, while something goes wrong for another tenant.
type neighbours struct {
	tenants int
	every   time.Duration // between two requests of a tenant
	calls   func(ctx context.Context, t *fleet.Tenant) ([]call, error)
}

// live creates the tenants and has them send requests until end is called, which returns the counted responses.
func (n neighbours) live(ctx context.Context, f *fleet.Fleet) (counted *visitor.Visits, end func(), err error) {
	var each [][]call
	for range n.tenants {
		t, err := f.NewTenant(ctx)
		if err != nil {
			return nil, nil, err
		}
		calls, err := n.calls(ctx, t)
		if err != nil {
			return nil, nil, err
		}
		each = append(each, calls)
	}
	client, hangUp := newAPIClient(f)
	counted = visitor.NewVisits()
	living, stop := context.WithCancel(ctx)
	var tenants sync.WaitGroup
	for _, calls := range each {
		tenants.Go(func() { client.at(living, n.every, calls, counted) })
	}
	return counted, func() { stop(); tenants.Wait(); hangUp() }, nil
}

// editors read, list and edit links.
func editors(ctx context.Context, t *fleet.Tenant) ([]call, error) {
	var calls []call
	for i := range 5 {
		link, err := t.MakeLink(ctx)
		if err != nil {
			return nil, err
		}
		calls = append(calls,
			call{t.ServerKey, "GET", "/links/" + link.ID, ""},
			call{t.ServerKey, "GET", "/links", ""},
			call{t.ServerKey, "GET", "/links?isActive=true", ""},
			call{t.ServerKey, "PATCH", "/links/" + link.ID, fmt.Sprintf(`{"title":"%d"}`, i)},
		)
	}
	return calls, nil
}

// phones send events. Each tenant has several.
func phones(_ context.Context, t *fleet.Tenant) ([]call, error) {
	var calls []call
	for i := range 20 {
		calls = append(calls, call{t.ClientKey, "POST", "/sdk/events", fmt.Sprintf(`{"deviceId":"phone-%d","events":[{"name":"open"}]}`, i)})
	}
	return calls, nil
}
