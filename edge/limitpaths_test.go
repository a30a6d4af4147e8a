package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/clicks"
	"deeplink/edge/internal/link"
	"deeplink/edge/internal/replica"
	"deeplink/edge/internal/wellknown"
	"deeplink/shared/ratelimit"
)

// Guessing paths must not be cheaper for a client than guessing codes.
func TestMalformedPathsCountAgainstTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 3
	links, err := replica.New(replica.Options{CacheBytes: 1 << 20, Load: func(_ context.Context, domain, code string) (replica.Result, error) {
		t.Errorf("%s/%s was looked up: none of these requests may reach the replica", domain, code)
		return replica.Result{}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, target, host string
		status             int
	}{
		{"malformed organization key", "/abc/x", "go.example.com", 400},
		{"malformed organization key, data", "/abc/x/data", "go.example.com", 400},
		{"target in absolute form", "http://go.example.com/abcd/x", "go.example.com", 400},
		{"unknown path", "/nothing", "go.example.com", 404},
		{"unknown well-known path", "/.well-known/nothing", "go.example.com", 404},
		{"too many segments", "/abcd/x/data/y", "go.example.com", 404},
		{"malformed code", "/abcd/-x", "go.example.com", 404},
		{"malformed code of a custom domain", "/-x", "links.example.com", 404},
		{"malformed host", "/abcd/x", "no_host", 404},
		{"association file of a malformed host", wellknown.ApplePath, "no_host", 404},
		{"query with too many parameters", "/abcd/x?" + strings.Repeat("&", link.MaxParameters), "go.example.com", 414},
	} {
		s := newServer(&options{LinkBaseURL: base}, links, new(errorPages), nil, new(clicks.Recorder), discard)
		s.limiter = ratelimit.NewMemory(ratelimit.Surface{Limit: limit, Window: time.Hour}, 256)
		ask := func(client int, target, host string) int {
			status := 0
			within(t, fmt.Sprintf("GET %s HTTP/1.1\nHost: %s\n\n", target, host), func(ctx *fasthttp.RequestCtx) {
				ctx.SetRemoteAddr(clientAddr(client))
				s.handle(ctx)
				status = ctx.Response.StatusCode()
				a := answer{status: status, body: string(ctx.Response.Body())}
				if e := a.envelope(t); status == 429 && e["message"] != "Rate limit exceeded. Retry after 3600 second(s)." {
					t.Errorf("%s: message %q", test.name, e["message"])
				}
			})
			return status
		}
		for i := range limit {
			if got := ask(1, test.target, test.host); got != test.status {
				t.Fatalf("%s, request %d of %d: status %d, expected %d", test.name, i+1, limit, got, test.status)
			}
		}
		if got := ask(1, test.target, test.host); got != 429 {
			t.Errorf("%s, over the limit: status %d, expected 429", test.name, got)
		}
		if got := ask(1, "/abcd/x", "go.example.com"); got != 429 {
			t.Errorf("%s: a click from the same address has status %d, expected 429", test.name, got)
		}
		if got := ask(1, "/healthz", "go.example.com"); got != 200 {
			t.Errorf("%s: /healthz from the same address has status %d, expected 200", test.name, got)
		}
		if got := ask(2, test.target, test.host); got != test.status {
			t.Errorf("%s, from another address: status %d, expected %d", test.name, got, test.status)
		}
	}
}
