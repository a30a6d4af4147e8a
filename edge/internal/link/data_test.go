package link

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"deeplink/shared/catalog"
)

// For any link, unpacking returns the body that was packed.
func TestPackedDataUnpacksToTheSameBody(t *testing.T) {
	t.Parallel()
	// Words that are packed, and fragments of them, in places where they are not structure.
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
		r := newRecord(t, link, bothApps)
		link.URL = catalog.ShortURL(base, "abcd", "", link.ShortCode)
		want, err := Marshal(link.Public())
		if err != nil {
			t.Fatal(err)
		}
		if got := r.AppendData([]byte("before")); string(got) != "before"+string(want) {
			t.Errorf("%q\nexpected after \"before\"\n%q", got, want)
		}
	})
}

// A word that starts with another one must come first, or it would never be used.
func TestEachDataWordPacksIntoOneByte(t *testing.T) {
	t.Parallel()
	for i, word := range dataWords {
		if packed := dataPacker.Replace(word); packed != string(rune(wordBase+i)) {
			t.Errorf("%s is packed into %q, expected one byte", word, packed)
		}
	}
}

// Names of fields are not stored, whichever fields are set.
func TestPackedDataContainsNoFieldNames(t *testing.T) {
	t.Parallel()
	all := spring
	all.Channel, all.UTMMedium, all.UTMCampaign, all.UTMTerm, all.UTMContent = text("c"), text("m"), text("c"), text("t"), text("o")
	all.Expiry, all.Params = &catalog.Time{Time: time.UnixMilli(1)}, json.RawMessage(`{}`)
	for _, link := range []catalog.Link{{ShortCode: "x"}, spring, all} {
		r := newRecord(t, link, catalog.AppConfig{})
		for _, name := range []string{`"id"`, `"url"`, "shortCode", "path", "params", "channel", "utm", "fallbackUrl", "null", `"og"`, "description", "imageUrl", "expiry", anID} {
			if packed := string(r.part(dataPart)); strings.Contains(packed, name) {
				t.Errorf("%q contains %s", packed, name)
			}
		}
	}
}
