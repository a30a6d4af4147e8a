package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/edge/internal/wellknown"
)

// served returns what the edge serves on the host: the destination or the status of each code, and the apps of its association files.
func (e *testEdge) served(t *testing.T, host string, codes ...string) (all []string) {
	t.Helper()
	for _, code := range codes {
		a := e.get(t, "/"+code, "Host: "+host)
		all = append(all, fmt.Sprintf("%s %d %s", code, a.status, a.header.Get("Location")))
	}
	if a := e.get(t, "/"+codes[0]+"/data", "Host: "+host); a.status == 200 {
		all = append(all, fmt.Sprintf("data %t", strings.Contains(a.body, "https://one.example/")))
	}
	if a := e.get(t, wellknown.ApplePath, "Host: "+host); a.status != 200 {
		return append(all, fmt.Sprintf("files %d", a.status))
	}
	return append(all, fmt.Sprint("files ", e.associated(t, host)))
}

// Once a host has moved, the edge serves nothing of its former owner there, whatever is in the cache: links, unknown codes and
// association files.
func TestHostThatMovedServesItsNewOwnerAlone(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	one, two := r.organization("abcd"), r.organization("wxyz")
	r.apps(one, "one")
	r.apps(two, "two")
	const host = "go.moved.example"
	owned, claimed := r.domain(one, host, "verified"), r.domain(two, host, "pending")
	link := func(organization, domain, code, to string) {
		r.link(organization, code, map[string]any{"domain_id": domain, "fallback_url": "https://" + to + ".example/"})
	}
	link(one, owned, "sale", "one")
	link(one, owned, "old", "one")
	link(two, claimed, "sale", "two")
	link(two, claimed, "new", "two")
	e.settle(t)

	before := []string{"sale 302 https://one.example/", "old 302 https://one.example/", "new 404 ", "data true", "files [one]"}
	after := []string{"sale 302 https://two.example/", "old 404 ", "new 302 https://two.example/", "data false", "files [two]"}
	check := func(when string, expected []string) {
		t.Helper()
		for range 3 { // first from Postgres, then from the cache
			if diff := cmp.Diff(expected, e.served(t, host, "sale", "old", "new")); diff != "" {
				t.Errorf("%s (-expected +served):\n%s", when, diff)
			}
		}
	}
	move := func(from, to string) {
		t.Helper()
		// One transaction: the edge must not see the host without an owner.
		r.exec(fmt.Sprintf(`update domains set status = 'pending' where id = '%s'; update domains set status = 'verified' where id = '%s'`, from, to))
		e.settle(t)
	}
	check("before the move", before)
	move(owned, claimed)
	check("after the move", after)
	move(claimed, owned)
	check("after the way back", before)
}
