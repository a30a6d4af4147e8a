package main

import (
	"testing"

	"deeplink/shared/testkit"
	"deeplink/shared/testkit/rawhttp"
)

// Malicious and malformed requests get the responses in answers.txt of shared/testkit/rawhttp.
func TestRawRequestsGetTheResponsesOfTheTable(t *testing.T) {
	testkit.Prove(t)
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
