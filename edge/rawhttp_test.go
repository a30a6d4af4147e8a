package main

import (
	"testing"

	"deeplink/shared/rawhttp"
)

// What clients and proxies can send that means harm, or nothing, is answered as answers.txt of shared/rawhttp says.
func TestRawRequestsAreAnsweredAsTheTableSays(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(c *options) {
		if err := c.TrustedProxies.UnmarshalText([]byte("127.0.0.1")); err != nil {
			t.Fatal(err)
		}
	})
	to := rawhttp.Edge(e.addr)
	t.Run("edge", func(t *testing.T) { rawhttp.Run(t, to) })
	t.Run("nginx", func(t *testing.T) { rawhttp.Run(t, to.Behind(rawhttp.Nginx(t, "edges", e.addr))) })
}
