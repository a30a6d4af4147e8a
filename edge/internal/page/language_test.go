package page

import (
	"regexp"
	"strings"
	"testing"
)

func TestEveryLanguageHasEveryPage(t *testing.T) {
	t.Parallel()
	found, err := files.ReadDir("templates/languages")
	if err != nil || len(found) != len(languages) {
		t.Errorf("%d files, %v, for %d languages", len(found), err, len(languages))
	}
	r := newTestLink(t, spring, bothApps, "")
	for i := range languages {
		l := &languages[i]
		if len(l.thisApp) > maxAppName || len(l.thisApp) == 0 {
			t.Errorf("%s: the words for an unknown app are %q", l.tag, l.thisApp)
		}
		for kind, p := range l.linkPages() {
			html := show(p, r, inApp(r, "LINE"))
			if !strings.Contains(html, `<html lang="`+l.tag+`"`) || regexp.MustCompile(`[{}]{2}|\[\[|\]\]|\{app|\{sec`).MatchString(regexp.MustCompile(`(?s)<(style|script).*?</(style|script)>`).ReplaceAllString(html, "")) {
				t.Errorf("%s, %s:\n%s", l.tag, kind, html)
			}
		}
		if !strings.Contains(showError(&l.errors[Busy], &values{slotSeconds: []byte("17")}), "17") {
			t.Errorf("%s does not say how long to wait", l.tag)
		}
		for kind := range l.errors {
			if html := showError(&l.errors[kind], &values{slotID: []byte(strings.Repeat("i", 128))}); len(html) > 15_000 {
				t.Errorf("%s: error page %d has %d bytes", l.tag, kind, len(html))
			}
		}
	}
}

func TestLanguageFollowsAcceptLanguage(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"":                                   "en",
		"*":                                  "en",
		"de":                                 "de",
		"DE-at":                              "de",
		"en-GB,en;q=0.9,de;q=0.8":            "en",
		"fr-CH, fr;q=0.9, en;q=0.8, *;q=0.5": "fr",
		"nl,de;q=0.4,ja;q=0.7":               "ja",
		"da, de;q=0":                         "en",
		"de;q=0.001":                         "de",
		"de;q=0.5,es;q=0.5":                  "de",
		"es;q=0.5,de;q=0.51":                 "de",
		"de;q=1.0,es":                        "de",
		"pt-BR":                              "pt",
		"zh":                                 "zh",
		"zh-CN":                              "zh",
		"zh-Hans-HK":                         "zh",
		"zh-TW":                              "zh-Hant",
		"zh-HK":                              "zh-Hant",
		"zh-hant":                            "zh-Hant",
		"zh-Hant-CN":                         "zh-Hant",
		"zz,ko;q=x":                          "ko",
		"deu":                                "en",
		"d":                                  "en",
		";;;,,,q=1":                          "en",
		" it ; q=0.3 ":                       "it",
		"iw, ar-EG;q=0.8":                    "ar",
	} {
		if got := languageFor([]byte(header)); got.tag != want {
			t.Errorf("Accept-Language %q: %s, expected %s", header, got.tag, want)
		}
	}
}
