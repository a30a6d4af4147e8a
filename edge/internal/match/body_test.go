package match

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzParseRequest(f *testing.F) {
	for _, body := range []string{
		`{"clipboardToken":"x","installReferrer":"mt=x","deviceId":"d","platform":"ios","appVersion":"1"}`, `{"deviceId":null}`, `{"platform":[]}`, `null`, `{`, "\xff",
		`{"installReferrer":"utm_source%3Dx%26mt%3Dy"}`, `{"installReferrer":"%zz&mt=%6d&mt=2;"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, details := parseRequest(body)
		for _, detail := range details {
			if detail.Field == "" || !strings.HasPrefix(detail.Message, detail.Field+" ") || !utf8.ValidString(detail.Message) {
				t.Fatalf("%q: detail %+v", body, detail)
			}
		}
		if details != nil {
			return
		}
		for text, most := range map[string]int{r.clipboardToken: 100, r.installReferrer: 2048, r.deviceID: 128} {
			if utf8.RuneCountInString(text) > most || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
				t.Fatalf("%q: read %+v", body, r)
			}
		}
		// A token at the start of a referrer is found whatever follows it, also if the referrer is encoded once more.
		with := "mt=TOKEN-_09&" + r.installReferrer
		if referrerToken(with) != "TOKEN-_09" || referrerToken(url.QueryEscape(with)) != "TOKEN-_09" {
			t.Fatalf("%q: the token is not found", with)
		}
	})
}
