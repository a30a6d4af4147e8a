package origin

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/catalog"
)

// TestEveryColumnOfALinkIsRead fills all columns, and then only the required ones.
func TestEveryColumnOfALinkIsRead(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	inBinary := w.origin(connectionsPerSender)
	w.edgeURL += "&default_query_exec_mode=simple_protocol"
	inTexts := w.origin(connectionsPerSender)
	const org = "00000000-0000-7000-8000-000000000001"
	find := func(expected Found) {
		t.Helper()
		for _, o := range []*Origin{inBinary, inTexts} {
			found, err := o.Link(t.Context(), "links.example.com", "code1")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(expected, found); d != "" {
				t.Errorf("- expected, + found:\n%s", d)
			}
		}
	}
	bare := catalog.Link{ID: verifiedLink, ShortCode: "Code1", Path: "/somewhere", IsActive: true}
	find(Found{OrgKey: "abcd", Host: "links.example.com", Link: &bare})

	w.exec(`update organizations set suspended = true`)
	w.exec(`insert into app_configs (organization_id, ios_bundle_id, ios_team_id, ios_app_store_id, ios_scheme, android_package_name,
	            android_sha256_cert_fingerprints, android_scheme, fallback_url, html_error_pages)
	        values ($1, 'com.example', 'TEAM567890', '123', 'ios', 'com.example.android', array['AA', 'BB'], 'android', 'https://example.com', true)`, org)
	w.exec(`update links set channel = 'mail', utm_source = '1', utm_medium = '2', utm_campaign = '3', utm_term = '4', utm_content = '5',
	            fallback_url = 'https://example.com/6', og_title = '7', og_description = '8', og_image_url = 'https://example.com/9',
	            expiry = '2030-01-02 03:04:05.678Z', params = '{"a": "b"}', is_active = false, title = 'not read', tags = array['not read']`)
	full := bare
	full.IsActive = false
	full.Channel, full.UTMSource, full.UTMMedium, full.UTMCampaign, full.UTMTerm, full.UTMContent = ptr("mail"), ptr("1"), ptr("2"), ptr("3"), ptr("4"), ptr("5")
	full.FallbackURL = ptr("https://example.com/6")
	full.OG = &catalog.OpenGraph{Title: ptr("7"), Description: ptr("8"), ImageURL: ptr("https://example.com/9")}
	full.Expiry = &catalog.Time{Time: time.Date(2030, 1, 2, 3, 4, 5, 678e6, time.UTC)}
	full.Params = json.RawMessage(`{"a": "b"}`)
	config := catalog.AppConfig{
		IOS:         &catalog.IOSApp{BundleID: ptr("com.example"), TeamID: ptr("TEAM567890"), AppStoreID: ptr("123"), Scheme: ptr("ios")},
		Android:     &catalog.AndroidApp{PackageName: ptr("com.example.android"), SHA256CertFingerprints: []string{"AA", "BB"}, Scheme: ptr("android")},
		FallbackURL: ptr("https://example.com"), HTMLErrorPages: true,
	}
	find(Found{OrgKey: "abcd", Suspended: true, Host: "links.example.com", AppConfig: config, Link: &full})

	found, err := inBinary.Link(t.Context(), "abcd", "unknown")
	if d := cmp.Diff(Found{OrgKey: "abcd", Suspended: true, AppConfig: config}, found); d != "" || err != nil {
		t.Errorf("an unknown code: %v, - expected, + found:\n%s", err, d)
	}
}

func ptr[T any](value T) *T { return &value }
