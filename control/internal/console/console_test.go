package console

import (
	"strings"
	"testing"

	"deeplink/shared/catalog"
)

func TestPageNamesTheProviderForDevelopment(t *testing.T) {
	t.Parallel()
	files, err := Files(Settings{TokenURL: "http://127.0.0.1:5555/token", Organization: `</script>"org`, RoleClaim: "the_role"})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(files[0].Policy, "; connect-src 'self' http://127.0.0.1:5555; ") {
		t.Errorf("the policy is %q", files[0].Policy)
	}
	page := string(files[0].Content)
	for _, expected := range []string{`"tokenUrl":"http://127.0.0.1:5555/token"`, `"roleClaim":"the_role"`, `"` + catalog.Channels[0] + `"`, `"enterprise"`, `"itms-services"`} {
		if !strings.Contains(page, expected) {
			t.Errorf("the page does not contain %s:\n%s", expected, page)
		}
	}
	if strings.Count(page, "</script>") != 2 {
		t.Errorf("a setting ended the script element that contains it:\n%s", page)
	}
}

func TestTokenURLIsChecked(t *testing.T) {
	t.Parallel()
	for address, origin := range map[string]string{
		"": "", "http://127.0.0.1:5555/token": "http://127.0.0.1:5555", "https://id.example": "https://id.example",
		"http://[::1]:80/t": "http://[::1]:80",
	} {
		if got, err := (Settings{TokenURL: address}).TokenOrigin(); got != origin || err != nil {
			t.Errorf("%q: %q, %v, expected %q", address, got, err, origin)
		}
	}
	for _, address := range []string{"id.example/token", "ftp://id.example/", "http:///token", "http://u@id.example/", "http://id.example/?a", "http://id.example/#a",
		"http://id.example; script-src *", "http://a;b/", "http://a,b/", "http://*/", "javascript:alert(1)"} {
		_, err := Files(Settings{TokenURL: address})
		if err == nil || !strings.Contains(err.Error(), "CONSOLE_DEV_TOKEN_URL") {
			t.Errorf("%q: %v, expected it to be refused", address, err)
		}
	}
}
