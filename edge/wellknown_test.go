package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/wellknown"
)

const (
	fingerprintOne = "14:6D:E9:83:C5:73:06:50:D8:EE:B9:95:2F:34:FC:64:16:A0:83:42:E6:1D:BE:A8:8A:04:96:B2:3F:CF:44:E5"
	fingerprintTwo = "BF:BC:40:36:A0:BC:1F:0A:FE:E3:51:63:10:AC:E7:F1:96:DC:BB:28:E5:70:4E:E2:64:EA:CC:4A:B9:A3:B3:3E"
)

// hostile is a text with characters that have a meaning in JSON, in HTML and in a shell, and with characters of several bytes.
const hostile = `x"],"y":[{"*":"</script>&\` + "\u2028\u00e4\n"

// component is a pattern of paths in an association file.
type component struct {
	Path    string `json:"/"`
	Exclude bool   `json:"exclude"`
}

// listed has the components of each app in an association file.
type listed map[string][]component

// readAssociation parses a file of either platform.
func readAssociation(t testing.TB, path, body string) listed {
	t.Helper()
	apps := make(listed)
	if path == wellknown.ApplePath {
		var file struct {
			AppLinks struct {
				Details []struct {
					AppIDs     []string
					Components []component
				}
			}
		}
		if err := json.Unmarshal([]byte(body), &file); err != nil {
			t.Fatalf("%v: %.200s", err, body)
		}
		for _, app := range file.AppLinks.Details {
			apps[strings.Join(app.AppIDs, " ")] = app.Components
		}
		return apps
	}
	var statements []struct {
		Target struct {
			PackageName  string   `json:"package_name"`
			Fingerprints []string `json:"sha256_cert_fingerprints"`
		}
		Extensions struct {
			HandleAllURLs struct {
				Components []component `json:"dynamic_app_link_components"`
			} `json:"delegate_permission/common.handle_all_urls"`
		} `json:"relation_extensions"`
	}
	if err := json.Unmarshal([]byte(body), &statements); err != nil {
		t.Fatalf("%v: %.200s", err, body)
	}
	for _, s := range statements {
		apps[s.Target.PackageName+" "+strings.Join(s.Target.Fingerprints, " ")] = s.Extensions.HandleAllURLs.Components
	}
	return apps
}

// opens reports whether an app with these components opens a path: the first match decides.
func opens(components []component, path string, caseSensitive bool) bool {
	for _, c := range components {
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(c.Path), `\*`, ".*") + "$"
		if !caseSensitive {
			pattern = "(?i)" + pattern
		}
		if regexp.MustCompile(pattern).MatchString(path) {
			return !c.Exclude
		}
	}
	return false
}

// An app opens every short URL of its organization, and no other path: neither /data nor another organization's links.
func TestAppOpensTheShortURLsOfItsOrganizationOnly(t *testing.T) {
	t.Parallel()
	onShared := []origin.App{{OrgKey: "demo", ID: "demo"}, {OrgKey: "ac2e", ID: "ac2e"}}
	onCustom := []origin.App{{ID: "own"}}
	for _, test := range []struct {
		host, path string
		apps       []origin.App
		who        string // opens it
		onIOSOnly  bool   // because the path differs in case from the short URL
	}{
		{"go.example.com", "/demo/x", onShared, "demo", false},
		{"go.example.com", "/demo/Spring-Sale_1", onShared, "demo", false},
		{"go.example.com", "/demo/k7m2qp9x", onShared, "demo", false},
		{"go.example.com", "/ac2e/x", onShared, "ac2e", false},
		{"go.example.com", "/Demo/x", onShared, "demo", true},
		{"go.example.com", "/AC2E/demo", onShared, "ac2e", true},
		{"go.example.com", "/demo/x/data", onShared, "", false},
		{"go.example.com", "/ac2e/demo/data", onShared, "", false},
		{"go.example.com", "/none/x", onShared, "", false},
		{"go.example.com", "/none/demo", onShared, "", false},
		{"go.example.com", "/demo2/x", onShared, "", false},
		{"go.example.com", "/xdemo/x", onShared, "", false},
		{"go.example.com", "/match", onShared, "", false},
		{"go.example.com", "/healthz", onShared, "", false},
		{"go.example.com", "/", onShared, "", false},
		{"links.example.net", "/x", onCustom, "own", false},
		{"links.example.net", "/Spring-Sale_1", onCustom, "own", false},
		{"links.example.net", "/x/data", onCustom, "", false},
	} {
		to := testHosts.route(nil, []byte(test.host), []byte(test.path))
		for _, file := range wellknown.Files {
			body, _, err := file.Render(test.apps)
			if err != nil {
				t.Fatal(err)
			}
			caseSensitive := file.Path == wellknown.GooglePath
			for id, components := range readAssociation(t, file.Path, string(body)) {
				got := opens(components, test.path, caseSensitive)
				want := strings.TrimSpace(id) == test.who && !(caseSensitive && test.onIOSOnly)
				if got != want {
					t.Errorf("%s on %s: opened by the app %q of %s: %v, expected %v", test.path, test.host, id, file.Path, got, want)
				}
				if got && to.kind != kindLink {
					t.Errorf("%s on %s is not a short URL, but the app %q of %s opens it", test.path, test.host, id, file.Path)
				}
			}
		}
	}
}
