package main

import (
	"strings"
	"testing"

	"deeplink/shared/catalog"
	"deeplink/shared/rawhttp"
)

// What clients and proxies can send that means harm, or nothing, is answered as answers.txt of shared/rawhttp says.
func TestRawRequestsAreAnsweredAsTheTableSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.serve()
	addr := strings.TrimPrefix(p.base, "http://")
	// A key for each, whose writes are counted apart.
	key := func() string { return *w.organization(catalog.Scale).ServerKey }
	t.Run("control", func(t *testing.T) { rawhttp.Run(t, rawhttp.Control(addr, key())) })
	t.Run("nginx", func(t *testing.T) {
		rawhttp.Run(t, rawhttp.Control(addr, key()).Behind(rawhttp.Nginx(t, "controls", addr)))
	})
}
