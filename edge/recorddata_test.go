package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"deeplink/shared/catalog"
)

// Whatever is in a link, its packed data come out as they went in.
func TestDataComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	// What is packed, and pieces of it, where it is none of it.
	pieces := append(slices.Clone(dataWords[:]), anID, `"`, `\`, `,`, "\x01\x02\x03", "\u2028", "<&>", "null", "https://a.example/", "ä", "a")
	hostile := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(pieces), rapid.String()), 0, 4).Draw(t, "pieces"), "")
	})
	maybe := rapid.Ptr(hostile, true)
	rapid.Check(t, func(t *rapid.T) {
		link := catalog.Link{
			ID: anID, ShortCode: hostile.Draw(t, "code"), Path: hostile.Draw(t, "path"), Channel: maybe.Draw(t, "channel"),
			UTMSource: maybe.Draw(t, "source"), UTMMedium: maybe.Draw(t, "medium"), UTMCampaign: maybe.Draw(t, "campaign"),
			UTMTerm: maybe.Draw(t, "term"), UTMContent: maybe.Draw(t, "content"),
		}
		if rapid.Bool().Draw(t, "has a fallback") {
			link.FallbackURL = text("https://a.example/" + hostile.Draw(t, "fallback"))
		}
		if rapid.Bool().Draw(t, "has a preview") {
			link.OG = &catalog.OpenGraph{Title: maybe.Draw(t, "title"), Description: maybe.Draw(t, "description"), ImageURL: maybe.Draw(t, "picture")}
		}
		if rapid.Bool().Draw(t, "expires") {
			link.Expiry = &catalog.Time{Time: time.UnixMilli(rapid.Int64Range(0, 1<<41).Draw(t, "expiry"))}
		}
		if rapid.Bool().Draw(t, "has parameters") {
			params, err := json.Marshal(map[string]string{hostile.Draw(t, "name"): hostile.Draw(t, "value")})
			if err != nil {
				t.Fatal(err)
			}
			link.Params = params
		}
		r := newTestRecord(t, link, bothApps, "")
		link.URL = catalog.ShortURL(base, "abcd", "", link.ShortCode)
		want, err := renderData(link)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.appendData([]byte("before")); string(got) != "before"+string(want) {
			t.Errorf("%q\nexpected after \"before\"\n%q", got, want)
		}
	})
}

// No word hides a longer one behind it.
func TestDataWordsAreUsed(t *testing.T) {
	t.Parallel()
	for i, word := range dataWords {
		if packed := dataPacker.Replace(word); packed != string(rune(wordBase+i)) {
			t.Errorf("%s is packed into %q, expected one byte", word, packed)
		}
	}
}

// The names of fields are not kept, whichever are there.
func TestNamesOfFieldsArePacked(t *testing.T) {
	t.Parallel()
	all := spring
	all.Channel, all.UTMMedium, all.UTMCampaign, all.UTMTerm, all.UTMContent = text("c"), text("m"), text("c"), text("t"), text("o")
	all.Expiry, all.Params = &catalog.Time{Time: time.UnixMilli(1)}, json.RawMessage(`{}`)
	for _, link := range []catalog.Link{{ShortCode: "x"}, spring, all} {
		r := newTestRecord(t, link, catalog.AppConfig{}, "")
		for _, name := range []string{`"id"`, `"url"`, "shortCode", "path", "params", "channel", "utm", "fallbackUrl", "null", `"og"`, "description", "imageUrl", "expiry", anID} {
			if packed := string(r.part(dataPart)); strings.Contains(packed, name) {
				t.Errorf("%s is in %q", name, packed)
			}
		}
	}
}
