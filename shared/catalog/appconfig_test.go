package catalog_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/catalog"
)

var print64 = strings.Repeat("ab:", 31) + "CD"

func TestAppConfigIsKept(t *testing.T) {
	t.Parallel()
	body := fmt.Sprintf(`{
		"ios": {"bundleId": "com.Acme-1.app", "teamId": "ABCDE12345", "appStoreId": "123456789012", "scheme": "acme+x.y-1"},
		"android": {"packageName": "com.acme_1.App", "sha256CertFingerprints": [%q], "scheme": "ab"},
		"fallbackUrl": "https://acme.example/", "htmlErrorPages": true}`, print64)
	got, err := catalog.ReadAppConfig([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	str := func(s string) *string { return &s }
	expected := catalog.AppConfig{
		IOS:         &catalog.IOSApp{BundleID: str("com.Acme-1.app"), TeamID: str("ABCDE12345"), AppStoreID: str("123456789012"), Scheme: str("acme+x.y-1")},
		Android:     &catalog.AndroidApp{PackageName: str("com.acme_1.App"), SHA256CertFingerprints: []string{strings.ToUpper(print64)}, Scheme: str("ab")},
		FallbackURL: str("https://acme.example/"), HTMLErrorPages: true,
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}

func TestAppConfigWithAnAppOrFallbackIsRegistered(t *testing.T) {
	t.Parallel()
	for body, expected := range map[string]bool{
		`{}`: false, `{"ios": null, "android": null, "fallbackUrl": null, "htmlErrorPages": null}`: false, `{"htmlErrorPages": true}`: false,
		`{"ios": {}}`: false, `{"ios": {"scheme": null}}`: false, `{"android": {"sha256CertFingerprints": null}}`: false,
		`{"ios": {"scheme": "acme"}}`: true, `{"android": {"packageName": "com.acme"}}`: true, `{"fallbackUrl": "https://acme.example/"}`: true,
	} {
		config, err := catalog.ReadAppConfig([]byte(body))
		if err != nil || config.Registered() != expected {
			t.Errorf("%s: registered %t, %v; expected %t", body, config.Registered(), err, expected)
		}
	}
}

const badScheme = "must be 2 to 32 of a-z, 0-9, +, . and -, and begin with a letter"

var refusedAppConfigs = []struct{ body, field, complaint string }{
	{`{"ios": 1}`, "ios", "must be a JSON object"},
	{`{"ios": {"foo": 1}}`, "ios.foo", "is not a known field"},
	{`{"web": {}}`, "web", "is not a known field"},
	{`{"ios": {"bundleId": "acme"}}`, "ios.bundleId", "must be a bundle id such as com.example.app"},
	{`{"ios": {"bundleId": "com..acme"}}`, "ios.bundleId", "must be a bundle id such as com.example.app"},
	{`{"ios": {"bundleId": "com.acme\n"}}`, "ios.bundleId", "must be a bundle id such as com.example.app"},
	{`{"ios": {"bundleId": "com.` + strings.Repeat("a", 252) + `"}}`, "ios.bundleId", "must be a bundle id such as com.example.app"},
	{`{"ios": {"bundleId": ""}}`, "ios.bundleId", "must be a bundle id such as com.example.app"},
	{`{"ios": {"teamId": "abcde12345"}}`, "ios.teamId", "must be 10 of A-Z and 0-9"},
	{`{"ios": {"teamId": "ABCDE1234"}}`, "ios.teamId", "must be 10 of A-Z and 0-9"},
	{`{"ios": {"appStoreId": 123456789}}`, "ios.appStoreId", "must be a string"},
	{`{"ios": {"appStoreId": "1234"}}`, "ios.appStoreId", "must be a string of 5 to 12 digits"},
	{`{"ios": {"appStoreId": "1234567890123"}}`, "ios.appStoreId", "must be a string of 5 to 12 digits"},
	{`{"ios": {"appStoreId": "id12345"}}`, "ios.appStoreId", "must be a string of 5 to 12 digits"},
	{`{"ios": {"scheme": "Acme"}}`, "ios.scheme", badScheme},
	{`{"ios": {"scheme": "a"}}`, "ios.scheme", badScheme},
	{`{"ios": {"scheme": "1a"}}`, "ios.scheme", badScheme},
	{`{"ios": {"scheme": "acme:"}}`, "ios.scheme", badScheme},
	{`{"ios": {"scheme": "` + strings.Repeat("a", 33) + `"}}`, "ios.scheme", badScheme},
	{`{"ios": {"scheme": "http"}}`, "ios.scheme", "is reserved"},
	{`{"ios": {"scheme": "https"}}`, "ios.scheme", "is reserved"},
	{`{"ios": {"scheme": "javascript"}}`, "ios.scheme", "is reserved"},
	{`{"android": {"scheme": "data"}}`, "android.scheme", "is reserved"},
	{`{"android": {"scheme": "file"}}`, "android.scheme", "is reserved"},
	{`{"android": {"scheme": "intent"}}`, "android.scheme", "is reserved"},
	{`{"android": {"packageName": "com"}}`, "android.packageName", "must be a package name such as com.example.app"},
	{`{"android": {"packageName": "com.1acme"}}`, "android.packageName", "must be a package name such as com.example.app"},
	{`{"android": {"packageName": "com.ac-me"}}`, "android.packageName", "must be a package name such as com.example.app"},
	{`{"android": {"sha256CertFingerprints": []}}`, "android.sha256CertFingerprints", "must have 1 to 10 entries"},
	{`{"android": {"sha256CertFingerprints": [` + strings.Repeat(`"x",`, 10) + `"x"]}}`, "android.sha256CertFingerprints", "must have 1 to 10 entries"},
	{`{"android": {"sha256CertFingerprints": "x"}}`, "android.sha256CertFingerprints", "must be an array of strings"},
	{`{"android": {"sha256CertFingerprints": ["ab:cd"]}}`, "android.sha256CertFingerprints", "entry 1 must be 32 pairs of hex digits with colons between them"},
	{`{"android": {"sha256CertFingerprints": [null]}}`, "android.sha256CertFingerprints", "entry 1 must be a string"},
	{`{"fallbackUrl": ""}`, "fallbackUrl", "must not be empty"},
	{`{"fallbackUrl": "javascript:x"}`, "fallbackUrl", notURL},
	{`{"htmlErrorPages": "yes"}`, "htmlErrorPages", "must be true or false"},
}

func TestInvalidAppConfigsAreRejectedByField(t *testing.T) {
	t.Parallel()
	for _, c := range refusedAppConfigs {
		_, err := catalog.ReadAppConfig([]byte(c.body))
		invalid(t, c.body, err, catalog.Invalid{Fields: []catalog.FieldError{{Field: c.field, Message: c.field + " " + c.complaint}}})
	}
}

// reservedSchemes is the list that the interface documents, not a copy of the one in the code: a scheme that is lost there fails here.
var reservedSchemes = []string{
	"about", "blob", "chrome", "content", "data", "file", "filesystem", "ftp", "http", "https", "intent", "itms", "itms-apps",
	"itms-appss", "itms-services", "jar", "javascript", "mailto", "market", "resource", "sms", "tel", "vbscript", "view-source", "ws",
	"wss",
}

func TestReservedSchemesAreRejectedForBothPlatforms(t *testing.T) {
	t.Parallel()
	for _, scheme := range reservedSchemes {
		for _, platform := range []string{"ios", "android"} {
			body := fmt.Sprintf(`{%q: {"scheme": %q}}`, platform, scheme)
			_, err := catalog.ReadAppConfig([]byte(body))
			field := platform + ".scheme"
			invalid(t, body, err, catalog.Invalid{Fields: []catalog.FieldError{{Field: field, Message: field + " is reserved"}}})
		}
	}
	for _, scheme := range []string{"shop", "tel2", "com.example.market", "itms-app", "smsx"} {
		if _, err := catalog.ReadAppConfig([]byte(`{"ios": {"scheme": "` + scheme + `"}}`)); err != nil {
			t.Errorf("scheme %s: %v, expected it to be accepted", scheme, err)
		}
	}
}

func FuzzReadAppConfig(f *testing.F) {
	for _, c := range refusedAppConfigs {
		f.Add([]byte(c.body))
	}
	f.Add(fmt.Appendf(nil, `{"android": {"sha256CertFingerprints": [%q]}, "ios": {"scheme": "acme"}}`, print64))
	f.Fuzz(func(t *testing.T, body []byte) {
		config, err := catalog.ReadAppConfig(body)
		if err != nil {
			wellFormed(t, err)
			return
		}
		again, err := catalog.ReadAppConfig(jsonForm(t, config))
		if err != nil || !reflect.DeepEqual(config, again) {
			t.Errorf("%s sent back: %v (-first +second):\n%s", jsonForm(t, config), err, cmp.Diff(config, again))
		}
	})
}
