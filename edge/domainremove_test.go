package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/testkit"
)

// After control domain remove has returned, the next request finds no domain.
func TestRemovedDomainServesNothing(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	e := startEdgeOn(t, *database, func(c *options) { c.Lease = bound })
	o := newOperator(t, *database, e)
	const host = "links.one.example"
	o.run("org", "create", "--name=One", "--org-key=abcd", "--app-config=demo")
	for range 3 {
		o.run("domain", "add", "abcd", host, "--verified")
		if diff := cmp.Diff([]string{"sale 404 ", "files [deeplink]"}, e.served(t, host, "sale")); diff != "" {
			t.Errorf("the domain (-expected +served):\n%s", diff)
		}
		o.run("domain", "remove", "abcd", host)
		if diff := cmp.Diff([]string{"sale 404 ", "files 404"}, e.served(t, host, "sale")); diff != "" {
			t.Errorf("the removed domain (-expected +served):\n%s", diff)
		}
	}
}
