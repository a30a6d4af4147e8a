package main

import (
	"encoding/json"
	"testing"
	"time"

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
			r, err := newRecord(base, test.found)
			if err != nil {
				t.Fatal(err)
			}
			if r.suspended() != test.found.Suspended || r.active() != test.found.Link.IsActive || r.expiry() != test.expiry {
				t.Errorf("suspended %v, active %v, expiry %d; expected %v, %v, %d",
					r.suspended(), r.active(), r.expiry(), test.found.Suspended, test.found.Link.IsActive, test.expiry)
			}
			d := r.destination()
			if string(d.location) != test.to || !(0 <= d.pathEnd && d.pathEnd <= d.queryEnd && d.queryEnd <= len(d.location)) {
				t.Errorf("destination %q, path to %d, query to %d; expected %q", d.location, d.pathEnd, d.queryEnd, test.to)
			}
			var data struct{ URL string }
			if err := json.Unmarshal(r.data(), &data); err != nil || data.URL != base+"/abcd/x" {
				t.Errorf("data %q (%v), expected the URL %s", r.data(), err, base+"/abcd/x")
			}
			head, tail := r.landing()
			if (len(head) > 0) != (test.to == "") || (len(tail) > 0) != (test.to == "") {
				t.Errorf("landing page of %d and %d bytes beside destination %q", len(head), len(tail), test.to)
			}
			if cap(r.data()) > len(r) {
				t.Errorf("a part can grow beyond its record")
			}
		})
	}
}
