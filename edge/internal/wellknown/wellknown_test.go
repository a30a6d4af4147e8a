package wellknown

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/edge/internal/origin"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	fingerprintOne = "14:6D:E9:83:C5:73:06:50:D8:EE:B9:95:2F:34:FC:64:16:A0:83:42:E6:1D:BE:A8:8A:04:96:B2:3F:CF:44:E5"
	fingerprintTwo = "BF:BC:40:36:A0:BC:1F:0A:FE:E3:51:63:10:AC:E7:F1:96:DC:BB:28:E5:70:4E:E2:64:EA:CC:4A:B9:A3:B3:3E"
)

// hostile is a text with characters that have a meaning in JSON, in HTML and in a shell, and with characters of several bytes.
const hostile = `x"],"y":[{"*":"</script>&\` + "\u2028\u00e4\n"

func TestFilesEqualTheirGoldenFiles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		golden string
		file   File
		apps   []origin.App
	}{
		{"ios-shared.golden", Files[0], []origin.App{
			{OrgKey: "demo", ID: "ABCDE12345.com.example.app"}, {OrgKey: "ac2e", ID: "99999ZZZZZ.com.example.other"}, {OrgKey: "test", ID: "ABCDE12345.com.example.app"},
		}},
		{"ios-custom.golden", Files[0], []origin.App{{ID: "ABCDE12345.com.example.app"}}},
		{"ios-none.golden", Files[0], nil},
		{"ios-hostile.golden", Files[0], []origin.App{{OrgKey: "demo", ID: hostile}}},
		{"android-shared.golden", Files[1], []origin.App{
			{OrgKey: "demo", ID: "com.example.app", Fingerprints: []string{fingerprintOne}},
			{OrgKey: "ac2e", ID: "com.example.other", Fingerprints: []string{fingerprintOne, fingerprintTwo}},
			{OrgKey: "test", ID: "com.example.app", Fingerprints: []string{strings.ToLower(fingerprintTwo), strings.ToLower(fingerprintOne)}},
		}},
		{"android-custom.golden", Files[1], []origin.App{{ID: "com.example.app", Fingerprints: []string{fingerprintOne}}}},
		{"android-none.golden", Files[1], nil},
		{"android-hostile.golden", Files[1], []origin.App{{OrgKey: "demo", ID: hostile, Fingerprints: []string{hostile}}}},
	} {
		t.Run(test.golden, func(t *testing.T) {
			t.Parallel()
			got, fitting, err := test.file.Render(test.apps)
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

// appCount returns the number of apps in a file.
func appCount(t *testing.T, path string, body []byte) int {
	t.Helper()
	if path == ApplePath {
		var file appleFile
		if err := json.Unmarshal(body, &file); err != nil {
			t.Fatalf("%v: %.200s", err, body)
		}
		return len(file.AppLinks.Details)
	}
	var statements []googleStatement
	if err := json.Unmarshal(body, &statements); err != nil {
		t.Fatalf("%v: %.200s", err, body)
	}
	return len(statements)
}

// A platform ignores a file that is too large, for all apps of the host. So the file ends after the last organization that fits.
func TestFileListsTheOldestOrganizationsThatFit(t *testing.T) {
	t.Parallel()
	var apps []origin.App
	for i := range 4000 {
		app := origin.App{OrgKey: fmt.Sprintf("%04d", i), ID: fmt.Sprintf("com.example.number%d", i), Fingerprints: []string{fingerprintOne, fingerprintTwo}}
		if i%7 == 0 {
			app.ID = "com.example.common"
		}
		apps = append(apps, app)
	}
	for _, file := range Files {
		for _, n := range []int{1, 100, len(apps)} {
			body, fitting, err := file.Render(apps[:n])
			if err != nil {
				t.Fatal(err)
			}
			whole, err := file.render(apps[:fitting])
			if err != nil || string(whole) != string(body) || len(body) > file.maxBytes {
				t.Errorf("%s of %d: %d bytes with %d of them, %v; expected at most %d bytes, of the first ones", file.Path, n, len(body), fitting, err, file.maxBytes)
			}
			if fitting == n {
				continue
			}
			if more, err := file.render(apps[:fitting+1]); err != nil || len(more) <= file.maxBytes {
				t.Errorf("%s: %d of %d, but one more makes %d bytes, %v", file.Path, fitting, n, len(more), err)
			}
		}
		if _, fitting, _ := file.Render(apps); fitting < 1000 || fitting == len(apps) {
			t.Errorf("%s has %d of %d, expected most of them and not all", file.Path, fitting, len(apps))
		}
		// If a single app is too large, the file ends before it and is still valid.
		huge := slices.Insert(slices.Clone(apps[:2]), 1, origin.App{OrgKey: "huge", ID: strings.Repeat("x", file.maxBytes), Fingerprints: []string{fingerprintOne}})
		body, fitting, err := file.Render(huge)
		if err != nil || fitting != 1 || appCount(t, file.Path, body) != 1 {
			t.Errorf("%s with a huge app: %d fit, %v", file.Path, fitting, err)
		}
	}
}
