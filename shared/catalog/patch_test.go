package catalog_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"deeplink/shared/catalog"
)

// jsonForm is what the service answers: without HTML escapes, which would lengthen params.
func jsonForm(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func members(t testing.TB, body []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// mergePatch is RFC 7396, 2, to the letter.
func mergePatch(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for name, value := range p {
		if value == nil {
			delete(t, name)
		} else {
			t[name] = mergePatch(t[name], value)
		}
	}
	return t
}

// unset takes nulls away, and an og that is empty then: in our answers they say the same as absence. Params are opaque.
func unset(link map[string]any) map[string]any {
	if og, ok := link["og"].(map[string]any); ok {
		unset(og)
		if len(og) == 0 {
			delete(link, "og")
		}
	}
	for name, value := range link {
		if value == nil {
			delete(link, name)
		}
	}
	return link
}

var values = map[string]*rapid.Generator[any]{
	"path":        text("/a", "b?c=d"),
	"domainId":    optional(text("aaaaaaaa-bbbb-4ccc-8ddd-0123456789ab", "bbbbbbbb-bbbb-4ccc-8ddd-0123456789ab")),
	"shortCode":   text("A", "b-9"),
	"externalId":  optional(text("sku-1", "SKU 1")),
	"channel":     optional(text("email", "x")),
	"utmSource":   optional(text("s", "ü")),
	"utmMedium":   optional(text("m")),
	"utmCampaign": optional(text("c")),
	"utmTerm":     optional(text("t")),
	"utmContent":  optional(text("c")),
	"fallbackUrl": optional(text("https://a.example/", "http://b.example/?c=d")),
	"og": optional(object(map[string]*rapid.Generator[any]{
		"title": optional(text("t")), "description": optional(text("d")), "imageUrl": optional(text("https://a.example/i.png")),
	})),
	"title":      optional(text("T")),
	"tags":       optional(rapid.Map(rapid.SliceOfNDistinct(rapid.SampledFrom([]any{"a", "b", "c"}), 0, 3, rapid.ID), func(s []any) any { return s })),
	"expiry":     optional(text("2030-01-31T12:00:00.000Z", "1999-01-31T12:00:00.125Z")),
	"templateId": optional(text("tpl")),
	"isActive":   rapid.SampledFrom([]any{true, false}),
}

func text(samples ...any) *rapid.Generator[any] { return rapid.SampledFrom(samples) }

func optional(g *rapid.Generator[any]) *rapid.Generator[any] {
	return rapid.OneOf(g, rapid.Just[any](nil))
}

// object draws some of the members.
func object(members map[string]*rapid.Generator[any]) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		m := map[string]any{}
		for name, value := range members {
			if rapid.Bool().Draw(t, name+" sent") {
				m[name] = value.Draw(t, name)
			}
		}
		return m
	})
}

func TestPatchFollowsRFC7396(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		first := object(values).Draw(rt, "link").(map[string]any)
		first["path"], first["shortCode"] = "/first", "first"
		link, err := catalog.ReadLink(jsonForm(t, first))
		if err != nil {
			rt.Fatal(err)
		}
		link.DomainID = "cccccccc-bbbb-4ccc-8ddd-0123456789ab"
		patch := object(values).Draw(rt, "patch").(map[string]any)
		expected := unset(mergePatch(members(t, jsonForm(t, link)), members(t, jsonForm(t, patch))).(map[string]any))
		if domain, sent := patch["domainId"]; sent && domain == nil {
			expected["domainId"] = "" // the default domain
		}

		p, err := catalog.ReadPatch(jsonForm(t, patch))
		if err != nil {
			rt.Fatal(err)
		}
		before := jsonForm(t, link)
		patched := link
		p.Apply(&patched)
		if diff := cmp.Diff(expected, unset(members(t, jsonForm(t, patched)))); diff != "" {
			rt.Errorf("patch %s of %s (-RFC 7396 +got):\n%s", jsonForm(t, patch), before, diff)
		}
		if after := jsonForm(t, link); !bytes.Equal(before, after) {
			rt.Errorf("patch %s of a copy changed the original\n%s\ninto\n%s", jsonForm(t, patch), before, after)
		}
		twice := patched
		p.Apply(&twice)
		if diff := cmp.Diff(patched, twice); diff != "" {
			rt.Errorf("patch %s applied twice (-once +twice):\n%s", jsonForm(t, patch), diff)
		}
	})
}

func TestEveryFieldOfALinkIsReadOrIsOutput(t *testing.T) {
	t.Parallel()
	known := members(t, jsonForm(t, catalog.LinkWithDomain{}))
	output := map[string]bool{"id": true, "organizationId": true, "url": true, "domain": true, "createdAt": true, "updatedAt": true}
	for name := range known {
		if values[name] == nil && !output[name] && name != "params" {
			t.Errorf("%s is neither drawn by the test of patches nor output", name)
		}
		body := fmt.Sprintf(`{"path": "/x", %q: null}`, name)
		if _, err := catalog.ReadLink([]byte(body)); err != nil && name != "path" && name != "shortCode" {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestPatchReplacesParamsWhole(t *testing.T) {
	t.Parallel()
	link := catalog.Link{Params: json.RawMessage(`{"a":1,"b":2}`)}
	for _, c := range []struct{ patch, expected string }{
		{`{}`, `{"a":1,"b":2}`}, {`{"params": {"a": null}}`, `{"a":null}`}, {`{"params": {}}`, `{}`}, {`{"params": null}`, ``},
	} {
		p, err := catalog.ReadPatch([]byte(c.patch))
		if err != nil {
			t.Fatal(err)
		}
		patched := link
		p.Apply(&patched)
		if string(patched.Params) != c.expected {
			t.Errorf("%s: params %s, expected %s", c.patch, patched.Params, c.expected)
		}
	}
}

// roundTrip checks that what is answered of a link can be sent back and is the same link then.
func roundTrip(t *testing.T, link catalog.Link) {
	t.Helper()
	// The store fills these in.
	if link.ShortCode == "" {
		link.ShortCode = catalog.GenerateCode()
	}
	if link.DomainID == "" {
		link.DomainID = "cccccccc-bbbb-4ccc-8ddd-0123456789ab"
	}
	answered := jsonForm(t, catalog.LinkWithDomain{Link: link})
	again, err := catalog.ReadLink(answered)
	if err != nil {
		t.Fatalf("%s sent back: %v", answered, err)
	}
	if !reflect.DeepEqual(link, again) {
		t.Errorf("sent back (-first +second):\n%s", cmp.Diff(link, again))
	}
	p, err := catalog.ReadPatch(answered)
	if err != nil {
		t.Fatalf("%s sent back as a patch: %v", answered, err)
	}
	patched := catalog.Link{Path: "other", Title: new(string), OG: &catalog.OpenGraph{Title: new(string)}, Expiry: &catalog.Time{Time: time.Now()}}
	p.Apply(&patched)
	if !reflect.DeepEqual(link, patched) {
		t.Errorf("sent back as a patch (-first +second):\n%s", cmp.Diff(link, patched))
	}
}

func FuzzReadLink(f *testing.F) {
	addBodies(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		link, err := catalog.ReadLink(body)
		if err != nil {
			wellFormed(t, err)
			return
		}
		roundTrip(t, link)
	})
}

func FuzzReadPatch(f *testing.F) {
	addBodies(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := catalog.ReadPatch(body)
		if err != nil {
			wellFormed(t, err)
			return
		}
		link := catalog.Link{Path: "/x", IsActive: true}
		p.Apply(&link)
		roundTrip(t, link)
	})
}

func addBodies(f *testing.F) {
	add := func(body []byte) {
		// The fuzzer would spend its time on making long ones shorter.
		if len(body) < 256 {
			f.Add(body)
		}
	}
	add([]byte(`{}`))
	for _, c := range accepted {
		add([]byte(sent(c.field, c.value)))
	}
	for _, c := range refused {
		add([]byte(sent(c.field, c.value)))
	}
	for _, c := range urls {
		add(jsonForm(f, map[string]any{"path": "x", "fallbackUrl": c.url, "og": map[string]any{"imageUrl": c.url, "title": "<"}}))
	}
}

// wellFormed checks that an error names at least one field and each of them once.
func wellFormed(t *testing.T, err error) {
	t.Helper()
	invalid, ok := err.(catalog.Invalid)
	if !ok || len(invalid.Fields) == 0 {
		t.Fatalf("error %#v, expected a catalog.Invalid with fields", err)
	}
	seen := make(map[string]bool)
	for _, f := range invalid.Fields {
		if f.Message == "" || seen[f.Field] {
			t.Errorf("%+v: no message, or a field twice", invalid.Fields)
		}
		seen[f.Field] = true
	}
}
