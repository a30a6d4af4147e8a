package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"deeplink/edge/internal/origin"
	"deeplink/shared/catalog"
)

func TestRecordKeepsWhatItWasMadeOf(t *testing.T) {
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
		{"a link with all of it", origin.Found{OrgKey: "abcd", Suspended: true, Link: &catalog.Link{
			ShortCode: "x", Expiry: at("2030-01-02T03:04:05.678Z"), FallbackURL: text("https://a.example/p?q#f"), IsActive: true,
		}}, 1893553445678, "https://a.example/p?q#f"},
		{"an expiry before 1970", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", Expiry: at("0001-01-01T00:00:00Z")}}, -62135596800000, ""},
		{"an expiry far away", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", Expiry: at("9999-12-31T23:59:59.999Z"), IsActive: true}}, 253402300799999, ""},
		{"an organization's fallback", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x"}, AppConfig: catalog.AppConfig{FallbackURL: text("https://b.example")}}, catalog.NoExpiry, "https://b.example"},
		{"a fallback that is none", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", FallbackURL: text("javascript:alert(1)")}, AppConfig: catalog.AppConfig{FallbackURL: text("https://b.example")}}, catalog.NoExpiry, "https://b.example"},
		{"none at all", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", FallbackURL: text("javascript:alert(1)")}}, catalog.NoExpiry, ""},
		{"an expiry at the epoch", origin.Found{OrgKey: "abcd", Link: &catalog.Link{ShortCode: "x", Expiry: at("1970-01-01T00:00:00Z")}}, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.found.Link.ID = anID
			r, err := newRecord(base, test.found)
			if err != nil {
				t.Fatal(err)
			}
			if r.suspended() != test.found.Suspended || r.active() != test.found.Link.IsActive || r.expiry() != test.expiry || uuid.UUID(r.id()).String() != anID {
				t.Errorf("suspended %v, active %v, expiry %d, id %v; expected %v, %v, %d and %s",
					r.suspended(), r.active(), r.expiry(), uuid.UUID(r.id()), test.found.Suspended, test.found.Link.IsActive, test.expiry, anID)
			}
			d := r.destination()
			if string(d.location) != test.to || !(0 <= d.pathEnd && d.pathEnd <= d.queryEnd && d.queryEnd <= len(d.location)) {
				t.Errorf("destination %q, path to %d, query to %d; expected %q", d.location, d.pathEnd, d.queryEnd, test.to)
			}
			var data struct{ URL string }
			if err := json.Unmarshal(r.appendData(nil), &data); err != nil || data.URL != base+"/abcd/x" {
				t.Errorf("data %q (%v), expected the URL %s", r.appendData(nil), err, base+"/abcd/x")
			}
			if (len(r.value(slotQR)) > 0) != (test.to == "") {
				t.Errorf("a QR code of %d bytes beside the destination %q", len(r.value(slotQR)), test.to)
			}
			for part := range parts {
				if got := r.part(part); cap(got) > len(got) {
					t.Errorf("part %d can grow into what follows it", part)
				}
			}
		})
	}
}

func TestRecordKeepsNothingTwice(t *testing.T) {
	t.Parallel()
	link := spring
	link.FallbackURL, link.UTMSource = text("https://shop.example.com/spring"), nil
	link.Path, link.OG = "/collections/spring", &catalog.OpenGraph{Title: spring.OG.Title, Description: text("Light jackets"), ImageURL: text("https://cdn.example.com/a.jpg")}
	r := newTestRecord(t, link, bothApps, "")
	for _, s := range []slot{slotTitle, slotDescription, slotImage, slotPicture, slotURL, slotPath, slotAndroidPath} {
		if value := r.value(s); len(value) == 0 || strings.Count(string(r), string(value)) != 1 {
			t.Errorf("slot %s: %q is there %d times", slotNames[s], value, strings.Count(string(r), string(value)))
		}
	}
	// Its data as they are sent are twice as long.
	if data := r.appendData(nil); len(r) > len(data) {
		t.Errorf("a record of %d bytes, expected at most the %d that its data have", len(r), len(data))
	}
}
