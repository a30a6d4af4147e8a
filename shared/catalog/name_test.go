package catalog_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"deeplink/shared/catalog"
)

func TestGeneratedCodesAreReadableValidAndUnbiased(t *testing.T) {
	t.Parallel()
	const alphabet = "23456789abcdefghjkmnpqrstuvwxyz"
	const draws = 20_000
	counts := make(map[rune]int)
	seen := make(map[string]bool)
	for range draws {
		code := catalog.GenerateCode()
		if len(code) != 8 || strings.Trim(code, alphabet) != "" {
			t.Fatalf("code %q: not 8 of %s", code, alphabet)
		}
		seen[code] = true
		for _, c := range code {
			counts[c]++
		}
	}
	if _, err := catalog.ReadLink(fmt.Appendf(nil, `{"path": "x", "shortCode": %q}`, catalog.GenerateCode())); err != nil {
		t.Error(err)
	}
	// Of so many, two are the same in one run of four thousand.
	if len(seen) < draws-1 {
		t.Errorf("%d of %d codes were different", len(seen), draws)
	}
	// Six standard deviations: by chance this fails once in ten million runs. Bytes modulo 31 would be off by 23 of them.
	expected := float64(draws*8) / float64(len(alphabet))
	for _, c := range alphabet {
		if off := math.Abs(float64(counts[c]) - expected); off > 6*math.Sqrt(expected) {
			t.Errorf("%c was drawn %d times, expected about %.0f", c, counts[c], expected)
		}
	}
}

func TestOrganizationKeys(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if key := catalog.GenerateOrgKey(); !catalog.ValidOrgKey(key) {
			t.Fatalf("generated key %q is not valid", key)
		}
	}
	for key, expected := range map[string]bool{
		"acme": true, "0000": true, "z9z9": true,
		"": false, "acm": false, "acmes": false, "Acme": false, "ac-e": false, "data": false, "docs": false, "acé": false, "ac e": false, "acm\n": false,
	} {
		if got := catalog.ValidOrgKey(key); got != expected {
			t.Errorf("ValidOrgKey(%q) is %t, expected %t", key, got, expected)
		}
	}
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	const id = "0190f3a1-7b1c-7def-8abc-0123456789ab"
	if got, ok := catalog.ValidUUID(strings.ToUpper(id)); !ok || got != id {
		t.Errorf("upper case: got %q, %t", got, ok)
	}
	for _, s := range []string{
		"", id[1:], id + "0", "{" + id + "}", "urn:uuid:" + id, "x" + id + "x", strings.ReplaceAll(id, "-", ""), "0190f3a17-b1c-7def-8abc-0123456789ab",
		id + "\n", " " + id, "g" + id[1:], strings.Replace(id, "0", "０", 1), strings.Repeat("-", 36),
	} {
		if _, ok := catalog.ValidUUID(s); ok {
			t.Errorf("%q was accepted", s)
		}
	}
}
