package console

import (
	"strings"
	"testing"

	"deeplink/shared/catalog"
)

func TestPageNamesTheSettingsThatAreMissing(t *testing.T) {
	t.Parallel()
	files, err := Files(Settings{Missing: []string{"CONSOLE_URL"}})
	if err != nil {
		t.Fatal(err)
	}
	page := string(files[0].Content)
	for _, expected := range []string{`"provider":false`, `"missing":["CONSOLE_URL"]`, `"` + catalog.Channels[0] + `"`, `"enterprise"`, `"itms-services"`} {
		if !strings.Contains(page, expected) {
			t.Errorf("the page does not contain %s:\n%s", expected, page)
		}
	}
	if strings.Contains(page, `"missing":null`) {
		t.Errorf("a list is null in the page:\n%s", page)
	}
}

func TestPagesThatFollowASignInAreNotKept(t *testing.T) {
	t.Parallel()
	files, err := Files(Settings{Provider: true})
	if err != nil {
		t.Fatal(err)
	}
	volatile := map[string]bool{}
	for _, file := range files {
		if file.MediaType == "" {
			t.Errorf("%s has no media type", file.Path)
		}
		if file.Volatile {
			volatile[file.Path] = true
		}
	}
	if len(volatile) != 2 || !volatile["/console/link"] || !volatile["/console/done"] {
		t.Errorf("browsers must not keep %v, expected the link page and the one after a sign-in", volatile)
	}
}
