package api

import (
	"strings"
	"testing"

	"deeplink/shared/catalog"
	"deeplink/shared/testkit"
	"deeplink/shared/testkit/rawhttp"
)

// What clients and proxies can send that means harm, or nothing, is answered as answers.txt of shared/testkit/rawhttp says.
func TestRawRequestsAreAnsweredAsTheTableSays(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	addr := strings.TrimPrefix(p.Base, "http://")
	// A key for each, whose writes are counted apart.
	key := func() string { return *w.Organization(catalog.Scale).ServerKey }
	t.Run("control", func(t *testing.T) { rawhttp.Run(t, rawhttp.Control(addr, key())) })
	t.Run("nginx", func(t *testing.T) {
		rawhttp.Run(t, rawhttp.Control(addr, key()).Behind(rawhttp.Nginx(t, "controls", addr)))
	})
}
