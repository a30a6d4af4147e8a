package api

import (
	"strings"
	"testing"

	"deeplink/shared/catalog"
	"deeplink/shared/testkit"
	"deeplink/shared/testkit/rawhttp"
)

// The responses to malicious and malformed requests must match answers.txt of shared/testkit/rawhttp.
func TestRawRequestsGetTheResponsesOfTheTable(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	addr := strings.TrimPrefix(p.Base, "http://")
	// A new key for each request, so that the write limits do not add up.
	key := func() string { return *w.Organization(catalog.Scale).ServerKey }
	t.Run("control", func(t *testing.T) { rawhttp.Run(t, rawhttp.Control(addr, key())) })
	t.Run("nginx", func(t *testing.T) {
		rawhttp.Run(t, rawhttp.Control(addr, key()).Behind(rawhttp.Nginx(t, "controls", addr)))
	})
}
