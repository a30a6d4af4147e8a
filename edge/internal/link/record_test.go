package link

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/page"
	"deeplink/shared/catalog"
)

// base is LINK_BASE_URL.
const base = "https://go.example.com"

// anID is the id of every link here.
const anID = "0195514c-9a00-7b3e-8d2f-3b6a1c9e4f10"

func text(s string) *string { return &s }

// bothApps has an app for each platform.
var bothApps = catalog.AppConfig{
	IOS:     &catalog.IOSApp{AppStoreID: text("1234567890"), Scheme: text("shop")},
	Android: &catalog.AndroidApp{PackageName: text("com.example.shop"), Scheme: text("shop")},
}

var spring = catalog.Link{
	ShortCode: "Spring", Path: "/collections/spring?ref=a&b#top", FallbackURL: text("https://shop.example.com/spring?ref=deeplink"), UTMSource: text("mail"),
	OG: &catalog.OpenGraph{
		Title: text("The spring collection"), Description: text("Light jackets\nand linen shirts"),
		ImageURL: text("https://cdn.example.com/a.jpg?w=1200&h=630"),
	},
}

func newRecord(t interface {
	Helper()
	Fatal(...any)
}, link catalog.Link, config catalog.AppConfig) Record {
	t.Helper()
	link.ID = anID
	r, err := New(base, origin.Found{OrgKey: "abcd", Link: &link, AppConfig: config}, page.Prepare)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecordReturnsWhatItWasMadeOf(t *testing.T) {
	t.Parallel()
	at := func(text string) *catalog.Time {
		time, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return &catalog.Time{Time: time}
	}
	for _, test := range []struct {
		name   string
		found  origin.Found
		expiry int64
		to     string
	}{
		{"a complete link", origin.Found{OrgKey: "abcd", Suspended: true, Link: &catalog.Link{
			ShortCode: "x", Expiry: at("2030-01-02T03:04:05.678Z"), FallbackURL: text("https://a.example/p?q#f"), IsActive: true,
		}}, 1893553445678, "https://a.example/p?q#f"},
		{"an expiry before 1970", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", Expiry: at("0001-01-01T00:00:00Z")}}, -62135596800000, ""},
		{"the latest expiry", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", Expiry: at("9999-12-31T23:59:59.999Z"), IsActive: true}}, 253402300799999, ""},
		{"the organization's fallback URL", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x"}, AppConfig: catalog.AppConfig{FallbackURL: text("https://b.example")}}, catalog.NoExpiry, "https://b.example"},
		{"a fallback URL that is not on the web", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", FallbackURL: text("javascript:alert(1)")}, AppConfig: catalog.AppConfig{FallbackURL: text("https://b.example")}}, catalog.NoExpiry, "https://b.example"},
		{"no fallback URL", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", FallbackURL: text("javascript:alert(1)")}}, catalog.NoExpiry, ""},
		{"an expiry in 1970", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", Expiry: at("1970-01-01T00:00:00Z")}}, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.found.Link.ID = anID
			r, err := New(base, test.found, page.Prepare)
			if err != nil {
				t.Fatal(err)
			}
			if r.Suspended() != test.found.Suspended || r.Active() != test.found.Link.IsActive || r.Expiry() != test.expiry || uuid.UUID(r.ID()).String() != anID {
				t.Errorf("suspended %v, active %v, expiry %d, id %v; expected %v, %v, %d and %s",
					r.Suspended(), r.Active(), r.Expiry(), uuid.UUID(r.ID()), test.found.Suspended, test.found.Link.IsActive, test.expiry, anID)
			}
			d := r.Destination()
			if string(d.Location) != test.to || !(0 <= d.pathEnd && d.pathEnd <= d.queryEnd && d.queryEnd <= len(d.Location)) {
				t.Errorf("destination %q, path to %d, query to %d; expected %q", d.Location, d.pathEnd, d.queryEnd, test.to)
			}
			var data struct{ URL string }
			if err := json.Unmarshal(r.AppendData(nil), &data); err != nil || data.URL != base+"/abcd/x" {
				t.Errorf("data %q (%v), expected the URL %s", r.AppendData(nil), err, base+"/abcd/x")
			}
			for part := range maxParts {
				if got := r.part(part); cap(got) > len(got) {
					t.Errorf("part %d has capacity beyond its end: an append would overwrite the next part", part)
				}
			}
		})
	}
}

func TestRecordStoresRepeatedTextsOnce(t *testing.T) {
	t.Parallel()
	link := spring
	link.FallbackURL, link.UTMSource = text("https://shop.example.com/spring"), nil
	link.Path, link.OG = "/collections/spring", &catalog.OpenGraph{Title: spring.OG.Title, Description: text("Light jackets"), ImageURL: text("https://cdn.example.com/a.jpg")}
	r := newRecord(t, link, bothApps)
	for _, text := range []string{*link.OG.Title, *link.OG.Description, *link.OG.ImageURL, base + "/abcd/Spring", link.Path} {
		shown := false
		for i := range maxParts - textParts {
			shown = shown || string(r.Text(i)) == text
		}
		if n := strings.Count(string(r), text); !shown || n != 1 {
			t.Errorf("%q is stored %d times, and is a text for pages: %v", text, n, shown)
		}
	}
	// The body of /data alone, as sent, is twice as long.
	if data := r.AppendData(nil); len(r) > len(data) {
		t.Errorf("the record has %d bytes, expected at most the %d of the body of /data", len(r), len(data))
	}
}
