package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/edge/internal/origin"
)

const (
	fingerprintOne = "14:6D:E9:83:C5:73:06:50:D8:EE:B9:95:2F:34:FC:64:16:A0:83:42:E6:1D:BE:A8:8A:04:96:B2:3F:CF:44:E5"
	fingerprintTwo = "BF:BC:40:36:A0:BC:1F:0A:FE:E3:51:63:10:AC:E7:F1:96:DC:BB:28:E5:70:4E:E2:64:EA:CC:4A:B9:A3:B3:3E"
)

// hostile is a text that means something to JSON, to HTML, to a shell, and to who counts bytes.
const hostile = `x"],"y":[{"*":"</script>&\` + "\u2028\u00e4\n"

func TestAssociationFiles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		golden string
		file   associationFile
		apps   []origin.App
	}{
		{"wellknown-ios-shared.golden", associationFiles[0], []origin.App{
			{OrgKey: "demo", ID: "ABCDE12345.com.example.app"}, {OrgKey: "ac2e", ID: "99999ZZZZZ.com.example.other"}, {OrgKey: "test", ID: "ABCDE12345.com.example.app"},
		}},
		{"wellknown-ios-custom.golden", associationFiles[0], []origin.App{{ID: "ABCDE12345.com.example.app"}}},
		{"wellknown-ios-none.golden", associationFiles[0], nil},
		{"wellknown-ios-hostile.golden", associationFiles[0], []origin.App{{OrgKey: "demo", ID: hostile}}},
		{"wellknown-android-shared.golden", associationFiles[1], []origin.App{
			{OrgKey: "demo", ID: "com.example.app", Fingerprints: []string{fingerprintOne}},
			{OrgKey: "ac2e", ID: "com.example.other", Fingerprints: []string{fingerprintOne, fingerprintTwo}},
			{OrgKey: "test", ID: "com.example.app", Fingerprints: []string{strings.ToLower(fingerprintTwo), strings.ToLower(fingerprintOne)}},
		}},
		{"wellknown-android-custom.golden", associationFiles[1], []origin.App{{ID: "com.example.app", Fingerprints: []string{fingerprintOne}}}},
		{"wellknown-android-none.golden", associationFiles[1], nil},
		{"wellknown-android-hostile.golden", associationFiles[1], []origin.App{{OrgKey: "demo", ID: hostile, Fingerprints: []string{hostile}}}},
	} {
		t.Run(test.golden, func(t *testing.T) {
			t.Parallel()
			got, fitting, err := test.file.fit(test.apps)
			if err != nil || fitting != len(test.apps) {
				t.Fatalf("%d apps fit, %v; expected %d", fitting, err, len(test.apps))
			}
			if !json.Valid(got) {
				t.Errorf("not JSON: %s", got)
			}
			name := filepath.Join("testdata", test.golden)
			if *update {
				if err := os.WriteFile(name, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-expected +got; write it with -update):\n%s", name, diff)
			}
		})
	}
}

// listed is what a device makes of a file: the components of each app.
type listed map[string][]component

// readAssociation reads a file of either kind.
func readAssociation(t testing.TB, path, body string) listed {
	t.Helper()
	apps := make(listed)
	if path == appleAssociation {
		var file appleFile
		if err := json.Unmarshal([]byte(body), &file); err != nil {
			t.Fatalf("%v: %.200s", err, body)
		}
		for _, app := range file.AppLinks.Details {
			apps[strings.Join(app.AppIDs, " ")] = app.Components
		}
		return apps
	}
	var statements []googleStatement
	if err := json.Unmarshal([]byte(body), &statements); err != nil {
		t.Fatalf("%v: %.200s", err, body)
	}
	for _, s := range statements {
		apps[s.Target.PackageName+" "+strings.Join(s.Target.Fingerprints, " ")] = s.Extensions.HandleAllURLs.Components
	}
	return apps
}

// opens reports whether an app with these components opens a path: the first one that matches decides.
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

// An app opens every short URL of its organization, and nothing that is not one: neither data nor another organization's links.
func TestAppsOpenTheShortURLsOfTheirOrganizationAlone(t *testing.T) {
	t.Parallel()
	onShared := []origin.App{{OrgKey: "demo", ID: "demo"}, {OrgKey: "ac2e", ID: "ac2e"}}
	onCustom := []origin.App{{ID: "own"}}
	for _, test := range []struct {
		host, path string
		apps       []origin.App
		who        string // opens it
		onIOSOnly  bool   // because the case is another than that of short URLs as they are made
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
		asked := testHosts.route(nil, []byte(test.host), []byte(test.path))
		for _, file := range associationFiles {
			body, _, err := file.fit(test.apps)
			if err != nil {
				t.Fatal(err)
			}
			caseSensitive := file.platform == origin.Android
			for id, components := range readAssociation(t, file.path, string(body)) {
				got := opens(components, test.path, caseSensitive)
				want := strings.TrimSpace(id) == test.who && !(caseSensitive && test.onIOSOnly)
				if got != want {
					t.Errorf("%s on %s: opened by the app %q of %s: %v, expected %v", test.path, test.host, id, file.path, got, want)
				}
				if got && asked.kind != kindLink {
					t.Errorf("%s on %s is no short URL, and the app %q of %s opens it", test.path, test.host, id, file.path)
				}
			}
		}
	}
}

// A file that is too large is worth nothing to anybody on the host: it is cut after the last organization that fits in.
func TestAssociationFileHasTheOldestThatFitIn(t *testing.T) {
	t.Parallel()
	var apps []origin.App
	for i := range 4000 {
		app := origin.App{OrgKey: fmt.Sprintf("%04d", i), ID: fmt.Sprintf("com.example.number%d", i), Fingerprints: []string{fingerprintOne, fingerprintTwo}}
		if i%7 == 0 {
			app.ID = "com.example.common"
		}
		apps = append(apps, app)
	}
	for _, file := range associationFiles {
		for _, n := range []int{1, 100, len(apps)} {
			body, fitting, err := file.fit(apps[:n])
			if err != nil {
				t.Fatal(err)
			}
			whole, err := file.render(apps[:fitting])
			if err != nil || string(whole) != string(body) || len(body) > file.most {
				t.Errorf("%s of %d: %d bytes with %d of them, %v; expected at most %d bytes, of the first ones", file.path, n, len(body), fitting, err, file.most)
			}
			if fitting == n {
				continue
			}
			if more, err := file.render(apps[:fitting+1]); err != nil || len(more) <= file.most {
				t.Errorf("%s: %d of %d, but one more makes %d bytes, %v", file.path, fitting, n, len(more), err)
			}
		}
		if _, fitting, _ := file.fit(apps); fitting < 1000 || fitting == len(apps) {
			t.Errorf("%s has %d of %d, expected most of them and not all", file.path, fitting, len(apps))
		}
		// Were one alone too large, the file would have none, and still be one.
		huge := slices.Insert(slices.Clone(apps[:2]), 1, origin.App{OrgKey: "huge", ID: strings.Repeat("x", file.most), Fingerprints: []string{fingerprintOne}})
		body, fitting, err := file.fit(huge)
		if err != nil || fitting != 1 || len(readAssociation(t, file.path, string(body))) != 1 {
			t.Errorf("%s with a huge app: %d fit, %v", file.path, fitting, err)
		}
	}
}
