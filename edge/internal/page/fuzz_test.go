package page

import (
	"net/url"
	"strings"
	"testing"

	"deeplink/shared/catalog"
)

// FuzzAppURL encodes any path. The URL must have the app's scheme, must not end an attribute or the data of an intent, and must be stable:
// encoding it again changes nothing.
func FuzzAppURL(f *testing.F) {
	for _, path := range []string{"sale", "/sale?x=1#top", "//evil.example", "user@host:80/x", "/x#Intent;scheme=http;end", "[::1]", "%zz%00", "\xff\u202e", `"><script>`} {
		f.Add("shop", path)
	}
	f.Add("javascript", "alert(1)")
	f.Fuzz(func(t *testing.T, sent, path string) {
		scheme := appScheme(&sent)
		if scheme == "" {
			return
		}
		encoded := appPath(path)
		if strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+.-") != "" || scheme == "javascript" || scheme == "data" || scheme == "http" {
			t.Fatalf("scheme %q", scheme)
		}
		if strings.ContainsAny(encoded, "\"<>` \\\r\n\x00") || strings.Count(encoded, "#") > 1 {
			t.Errorf("%q becomes %q", path, encoded)
		}
		if _, fragment, found := strings.Cut(encoded, "#"); found && strings.Contains(fragment, ";") {
			t.Errorf("%q becomes %q, which ends the data of an intent", path, encoded)
		}
		if u, err := url.Parse(scheme + "://" + encoded); err == nil && (u.Scheme != scheme || u.User != nil || u.Port() != "") {
			t.Errorf("%q becomes %q, read as %+v", path, encoded, u)
		}
		if again := appPath(encoded); again != encoded {
			t.Errorf("%q becomes %q, then %q", path, encoded, again)
		}
		if len(scheme) > catalog.MaxAppID {
			t.Errorf("scheme %q", scheme)
		}
	})
}
