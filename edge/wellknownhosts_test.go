package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/edge/internal/wellknown"
	"deeplink/shared/ratelimit"
	"deeplink/shared/requestid"
	"deeplink/shared/settings"
)

// both are the paths of the association files.
var both = []string{wellknown.ApplePath, wellknown.GooglePath}

// apps gives an organization an iOS app com.example.{name} and an Android app of the same name.
func (r rows) apps(organizationID, name string) {
	r.t.Helper()
	r.exec(`insert into app_configs (organization_id, ios_team_id, ios_bundle_id, android_package_name, android_sha256_cert_fingerprints)
	        values ($1, 'ABCDE12345', 'com.example.' || $2, 'com.example.' || $2, $3)
	        on conflict (organization_id) do update set ios_bundle_id = excluded.ios_bundle_id, android_package_name = excluded.android_package_name`,
		organizationID, name, []string{fingerprintOne})
}

// associated requests both files of a host and returns the names of their apps, which must be the same in both.
func (e *testEdge) associated(t testing.TB, host string) (names []string) {
	t.Helper()
	for i, path := range both {
		var a answer
		// On a busy machine a load may time out: try again.
		until(t, path+" is answered", func() bool {
			a = e.get(t, path, "Host: "+host)
			return a.status != 503
		})
		if a.status != 200 {
			t.Fatalf("GET %s on %s: %d %s", path, host, a.status, a.body)
		}
		found := []string{}
		for id := range readAssociation(t, path, a.body) {
			id, _, _ = strings.Cut(strings.TrimPrefix(id, "ABCDE12345."), " ")
			found = append(found, strings.TrimPrefix(id, "com.example."))
		}
		slices.Sort(found)
		if i > 0 && !slices.Equal(found, names) {
			t.Fatalf("on %s one file has the apps %q, the other %q", host, names, found)
		}
		names = found
	}
	return names
}

// settle waits until the edge has applied every change.
func (e *testEdge) settle(t *testing.T) {
	t.Helper()
	until(t, "the edge has applied every change", func() (applied bool) {
		if err := e.owner.QueryRow(context.Background(), `select coalesce(bool_and(pg_visible_in_snapshot(c.xid, e.applied)), false) from changes c, edges e`).Scan(&applied); err != nil {
			t.Fatal(err)
		}
		return applied
	})
}

func TestEveryHostHasItsOwnAssociationFiles(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(c *options) { c.ExtraHosts = []settings.HostName{"also.example.com"} })
	r := rows{t, e.owner}
	one, two, gone, bare := r.organization("abcd"), r.organization("wxyz"), r.organization("gone"), r.organization("bare")
	r.apps(one, "one")
	r.apps(two, "two")
	r.apps(gone, "gone")
	r.domain(one, "links.one.example", "verified")
	r.domain(one, "second.one.example", "verified")
	r.domain(one, "pending.one.example", "pending")
	r.domain(gone, "links.gone.example", "verified")
	r.domain(bare, "links.bare.example", "verified")
	// Neither suspension nor a missing plan (no organization here has one) removes an app.
	r.exec(`update organizations set suspended = true where id = $1`, gone)
	// An incomplete app is not listed.
	for i, columns := range []string{
		`ios_team_id) values ($1, 'ABCDE12345'`, `ios_bundle_id) values ($1, 'com.example.half'`, `ios_scheme) values ($1, 'half'`,
		`android_package_name) values ($1, 'com.example.half'`, `android_sha256_cert_fingerprints) values ($1, '{` + fingerprintOne + `}'`,
		`android_package_name, android_sha256_cert_fingerprints) values ($1, 'com.example.half', '{}'`, `fallback_url) values ($1, 'https://half.example/'`,
	} {
		r.exec(`insert into app_configs (organization_id, `+columns+`)`, r.organization(fmt.Sprintf("hal%d", i)))
	}

	for host, want := range map[string][]string{
		"go.example.com":           {"gone", "one", "two"},
		"GO.example.com.:443":      {"gone", "one", "two"},
		"also.example.com":         {"gone", "one", "two"},
		"127.0.0.1:8080":           {"gone", "one", "two"},
		"localhost":                {"gone", "one", "two"},
		"links.one.example":        {"one"},
		"Links.One.EXAMPLE.:8443":  {"one"},
		"second.one.example":       {"one"},
		"links.gone.example":       {"gone"},
		"links.bare.example":       {},
		"pending.one.example":      nil,
		"unknown.example":          nil,
		"www.links.one.example":    nil,
		"shared":                   nil,
		"abcd":                     nil,
		"-a.example":               nil,
		"shared.example":           nil,
		"go.example.com.evil.test": nil,
	} {
		for _, path := range both {
			a := e.get(t, path, "Host: "+host)
			checkHeaders(t, a)
			if want == nil {
				if a.status != 404 {
					t.Errorf("GET %s on %s: %d %s, expected 404", path, host, a.status, a.body)
				}
				checkEnvelope(t, a, path)
				continue
			}
			if a.status != 200 || a.header.Get("Content-Type") != "application/json" || a.header.Get("Location") != "" || !strings.HasPrefix(a.body, "{\"applinks\"") && !strings.HasPrefix(a.body, "[") {
				t.Errorf("GET %s on %s: %d %v %.100q", path, host, a.status, a.header, a.body)
			}
			head := e.ask(t, "HEAD", path, "Host: "+host)
			if head.status != 200 || head.body != "" || head.header.Get("Content-Length") != fmt.Sprint(len(a.body)) || head.header.Get("Content-Type") != "application/json" {
				t.Errorf("HEAD %s on %s: %d %v %q", path, host, head.status, head.header, head.body)
			}
			for _, its := range []string{"Date", requestid.Header} {
				a.header.Del(its)
				head.header.Del(its)
			}
			if diff := cmp.Diff(a.header, head.header); diff != "" {
				t.Errorf("%s on %s: (-GET +HEAD):\n%s", path, host, diff)
			}
			if again := e.get(t, path+"?v=1", "Host: "+host); again.body != a.body {
				t.Errorf("GET %s?v=1 on %s: %d %s", path, host, again.status, again.body)
			}
		}
		if want != nil {
			if diff := cmp.Diff(want, e.associated(t, host)); diff != "" {
				t.Errorf("on %s (-expected +got):\n%s", host, diff)
			}
		}
	}

	for _, path := range []string{
		"/apple-app-site-association", "/assetlinks.json", "/.well-known", "/.well-known/", "/.well-known/assetlinks", "/.well-known/assetlinks.json/", "/.well-known/Assetlinks.json",
		"/.well-known/apple-app-site-association.json", "/.well-known/apple-app-site-association/data", "/.well-known//assetlinks.json",
		"/.well-known/x/../assetlinks.json", "/shared/.well-known/assetlinks.json", "/abcd/.well-known/assetlinks.json",
	} {
		for _, host := range []string{"go.example.com", "links.one.example"} {
			if a := e.get(t, path, "Host: "+host); a.status != 404 {
				t.Errorf("GET %s on %s: %d %s, expected 404", path, host, a.status, a.body)
			}
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
		for _, path := range both {
			if a := e.ask(t, method, path); a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q; expected 405 and GET, HEAD", method, path, a.status, a.header.Get("Allow"))
			}
		}
	}
	if n := e.metrics(t)[`deeplink_edge_requests_total{kind="wellknown",status="405"}`]; n != "12" {
		t.Errorf("%q requests with 405 were counted, expected 12", n)
	}
}

func TestHostileAppConfigsAreEncodedAsJSON(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.domain(organization, "links.one.example", "verified")
	r.exec(`insert into app_configs (organization_id, ios_team_id, ios_bundle_id, android_package_name, android_sha256_cert_fingerprints)
	        values ($1, $2, $2, $2, array[$2, '14:6d'])`, organization, hostile)
	for _, host := range []string{"go.example.com", "links.one.example"} {
		for path, id := range map[string]string{wellknown.ApplePath: hostile + "." + hostile, wellknown.GooglePath: hostile + " " + strings.ToUpper(hostile) + " 14:6D"} {
			apps := readAssociation(t, path, e.get(t, path, "Host: "+host).body)
			if _, there := apps[id]; !there || len(apps) != 1 {
				t.Errorf("%s on %s: %v, expected %q", path, host, apps, id)
			}
		}
	}
}

func TestOrganizationsThatDoNotFitAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	// On a busy machine, loading thousands of apps may time out: try again after a 503.
	get := func(path string, header ...string) (a answer) {
		t.Helper()
		until(t, path+" is answered", func() bool {
			a = e.get(t, path, header...)
			return a.status != 503
		})
		return a
	}
	leftOut := func(path string) string { return e.metrics(t)[`deeplink_edge_association_left_out{path="`+path+`"}`] }
	if n := leftOut(wellknown.ApplePath); n != "0" {
		t.Fatalf("%s organizations left out at the start", n)
	}
	// Organizations are ordered by id.
	r.exec(`insert into organizations (id, org_key, name) select lpad(i::text, 32, '0')::uuid, lpad(i::text, 4, '0'), 'x' from generate_series(1, 5000) i`)
	r.exec(`insert into app_configs (organization_id, ios_team_id, ios_bundle_id, android_package_name, android_sha256_cert_fingerprints)
	        select id, 'ABCDE12345', 'com.example.a' || org_key, 'com.example.common', $1 from organizations order by random()`, []string{fingerprintOne})
	r.domain("00000000-0000-0000-0000-000000005000", "links.young.example", "verified")
	e.settle(t)

	a := get(wellknown.ApplePath)
	apps := readAssociation(t, wellknown.ApplePath, a.body)
	if len(a.body) > 128_000 || len(apps) < 1000 {
		t.Errorf("%d bytes with %d apps, expected at most 128,000, and hardly less", len(a.body), len(apps))
	}
	for i := 1; i <= len(apps); i++ {
		if _, there := apps[fmt.Sprintf("ABCDE12345.com.example.a%04d", i)]; !there {
			t.Fatalf("of %d apps the one of organization %d is not there, expected the oldest", len(apps), i)
		}
	}
	if n := leftOut(wellknown.ApplePath); n != fmt.Sprint(5000-len(apps)) {
		t.Errorf("%s organizations counted as left out, expected %d", n, 5000-len(apps))
	}
	get(wellknown.ApplePath)
	if n := strings.Count(e.log.String(), "custom domain"); n != 1 {
		t.Errorf("logged %d times, expected once:\n%s", n, e.log)
	}
	// At most 4,096 organizations are read, however small they are.
	for id, components := range readAssociation(t, wellknown.GooglePath, get(wellknown.GooglePath).body) {
		if len(components) != 2*4096 || leftOut(wellknown.GooglePath) != "904" {
			t.Errorf("%s has %d components, %s left out; expected 8192, 904", id, len(components), leftOut(wellknown.GooglePath))
		}
	}
	young := readAssociation(t, wellknown.ApplePath, get(wellknown.ApplePath, "Host: links.young.example").body)
	if _, there := young["ABCDE12345.com.example.a5000"]; !there || len(young) != 1 {
		t.Errorf("the custom domain of an organization that is left out has %v", young)
	}
	if n := leftOut(wellknown.ApplePath); n != fmt.Sprint(5000-len(apps)) {
		t.Errorf("%s organizations counted as left out after a custom domain was asked, expected %d", n, 5000-len(apps))
	}

	r.exec(`delete from app_configs where organization_id > '00000000-0000-0000-0000-000000000100'`)
	e.settle(t)
	get(wellknown.ApplePath)
	if n := leftOut(wellknown.ApplePath); n != "0" {
		t.Errorf("%s organizations left out when there is room", n)
	}
}

func TestAssociationFilesCountAgainstTheClickLimit(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.apps(r.organization("abcd"), "one")
	e.associated(t, "go.example.com")
	var raw strings.Builder
	for i := range 600 {
		path := append(slices.Clone(both), "/abcd/x")[i%3]
		fmt.Fprintf(&raw, "GET %s HTTP/1.1\r\nHost: go.example.com\r\n\r\n", path)
	}
	for range 20 {
		time.Sleep(ratelimit.Resolution.Window) // that of the attempt before is over
		began, admitted := time.Now(), 0
		answers := e.pipeline(t, raw.String(), 600)
		if time.Since(began) >= ratelimit.Resolution.Window {
			continue
		}
		for _, a := range answers {
			if a.status != 429 {
				admitted++
			}
		}
		if admitted != 500 {
			t.Errorf("%d of 600 requests within a second were admitted, expected 500", admitted)
		}
		return
	}
	t.Fatal("the machine is too slow to send so many requests within a second")
}
