package click_test

import (
	"testing"

	"deeplink/shared/click"
)

func TestNamesRoundTripAndReasonsHaveClasses(t *testing.T) {
	for _, name := range click.Outcomes() {
		if o, ok := click.ParseOutcome(name); !ok || o.String() != name {
			t.Errorf("outcome %q: %v, %v", name, o, ok)
		}
	}
	for _, name := range click.Classes() {
		if c, ok := click.ParseClass(name); !ok || c.String() != name {
			t.Errorf("class %q: %v, %v", name, c, ok)
		}
	}
	for _, name := range click.Reasons() {
		if r, ok := click.ParseReason(name); !ok || r.String() != name || r.Class().String() == "" {
			t.Errorf("reason %q: %v, %v, class %q", name, r, ok, r.Class())
		}
	}
	for _, unknown := range []string{"", "Redirect", "none"} {
		if _, ok := click.ParseOutcome(unknown); ok {
			t.Errorf("%q is an outcome", unknown)
		}
	}
	if click.Outcome(200).String() != "" || click.Class(200).String() != "" || click.Reason(200).Class() != 0 {
		t.Error("values out of range have names")
	}
}

const (
	windowsChrome = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
	macSafari     = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15"
	linuxFirefox  = "Mozilla/5.0 (X11; Linux x86_64; rv:142.0) Gecko/20100101 Firefox/142.0"
	iPhone        = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1"
)

func TestFirstMatchingRuleDecides(t *testing.T) {
	const browser = click.EvidenceLanguage | click.EvidenceHTML
	hint := func(platform string) click.Evidence { return click.PlatformHint([]byte(`"` + platform + `"`)) }
	for _, test := range []struct {
		agent    string
		evidence click.Evidence
		want     click.Reason
	}{
		{windowsChrome, browser | click.EvidenceHead | click.EvidencePrefetch, click.HeadRequest},
		{"facebookexternalhit/1.1", click.EvidencePrefetch, click.PrefetchHeader},
		{"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; ChatGPT-User/1.0; +https://openai.com/bot", browser, click.AssistantName},
		{"mistralai-user/1.0", 0, click.AssistantName},
		{"DuckAssistBot/1.2; (+http://duckduckgo.com/duckassistbot.html)", 0, click.AssistantName},
		{"meta-externalfetcher/1.1", 0, click.AssistantName},
		{"facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)", 0, click.PreviewName},
		{"WHATSAPP/2.23.20.0", 0, click.PreviewName},
		{"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) WhatsApp", browser, click.Browser},
		{"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/103 Safari/537.36 Edg/103 BingPreview/1.0b", browser, click.PreviewName},
		{"Pinterest/0.2 (+https://www.pinterest.com/bot.html)", 0, click.PreviewName},
		{"http.rb/5.1 (Mastodon/4.2; +https://mastodon.social/)", 0, click.PreviewName},
		{"Google-Safety; +http://www.google.com/bot.html", 0, click.ScannerName},
		{"Mozilla/5.0 (compatible; NetcraftSurveyAgent/1.0; +info@netcraft.com)", 0, click.ScannerName},
		{"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", browser, click.Crawler},
		{"ExampleBOT", 0, click.Crawler},
		{"Mozilla/5.0 SPIDER", browser, click.Crawler},
		{windowsChrome, browser | click.EvidenceBotPage, click.Crawler},
		{"Mozilla/5.0 (Linux; Android 13; CUBOT NOTE 50) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Mobile Safari/537.36", browser, click.Browser},
		{"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/140.0.0.0 Safari/537.36", browser, click.Automation},
		{windowsChrome, browser | click.EvidenceHeadless, click.Automation},
		{"curl/8.5.0", 0, click.Automation},
		{"Java/17.0.1", 0, click.Automation},
		{"", click.EvidenceNoAgent, click.NoAgent},
		{"  ", click.EvidenceNoAgent | browser, click.NoAgent},
		{"Dalvik/2.1.0 (Linux; U; Android 14; Pixel 8)", 0, click.NotABrowser},
		{"Opera/9.80 (Android; Opera Mini/36.2) Presto/2.12", browser, click.Browser},
		{"UCWEB/2.0 (Java; U; MIDP-2.0; Nokia203)", browser, click.Browser},
		{windowsChrome, 0, click.NoBrowserHeaders},
		{windowsChrome, click.EvidenceHTML, click.Browser},
		{windowsChrome, click.EvidenceLanguage, click.Browser},
		{windowsChrome, browser | hint("Linux"), click.HintsContradict},
		{macSafari, browser | hint("Linux"), click.HintsContradict},
		{macSafari, browser | hint("Windows"), click.HintsContradict},
		{linuxFirefox, browser | hint("Windows"), click.HintsContradict},
		{linuxFirefox, browser | hint("Linux"), click.Browser},
		{windowsChrome, browser | hint("Windows"), click.Browser},
		{windowsChrome, browser, click.Browser},
	} {
		if got := click.Classify(test.evidence, click.Read([]byte(test.agent))); got != test.want {
			t.Errorf("%q, evidence %b: %v, expected %v", test.agent, test.evidence, got, test.want)
		}
	}
	if got := click.Classify(0, click.Read([]byte(windowsChrome))|click.FactListed); got != click.Listed {
		t.Errorf("an agent of the list without browser headers: %v, expected that the list comes first", got)
	}
	if got := click.Classify(0, click.Read([]byte("Dalvik/2.1.0"))|click.FactListed); got != click.NotABrowser {
		t.Errorf("an agent of the list that is no browser: %v, expected that the list comes second", got)
	}
}

func TestHeadersBecomeEvidence(t *testing.T) {
	for _, test := range []struct {
		name      string
		got, want click.Evidence
	}{
		{"Sec-Purpose: prefetch;prerender", click.Purpose([]byte("prefetch;prerender"), false), click.EvidencePrefetch},
		{"X-Moz: Prefetch", click.Purpose([]byte("Prefetch"), false), click.EvidencePrefetch},
		{"Purpose: Preview", click.Purpose([]byte(" Preview "), true), click.EvidencePrefetch},
		{"Sec-Purpose: preview", click.Purpose([]byte("preview"), false), 0},
		{"Purpose: previews", click.Purpose([]byte("previews"), true), 0},
		{"Accept: text/HTML", click.Accept([]byte("text/HTML,*/*")), click.EvidenceHTML},
		{"Accept: */*", click.Accept([]byte("*/*")), 0},
		{"Sec-CH-UA", click.BrandHint([]byte(`"HeadlessChrome";v="140"`)), click.EvidenceHeadless},
		{"no hint", click.PlatformHint(nil), 0},
	} {
		if test.got != test.want {
			t.Errorf("%s: %b, expected %b", test.name, test.got, test.want)
		}
	}
}

func TestDimensionsOfAgents(t *testing.T) {
	hint := func(platform string) click.Evidence { return click.PlatformHint([]byte(`"` + platform + `"`)) }
	for _, test := range []struct {
		agent       string
		evidence    click.Evidence
		os, browser string
		device      click.Device
	}{
		{windowsChrome, 0, "windows", "chrome", click.Desktop},
		{windowsChrome + " Edg/140.0.0.0", 0, "windows", "edge", click.Desktop},
		{windowsChrome + " OPR/122.0.0.0", 0, "windows", "opera", click.Desktop},
		{macSafari, 0, "macos", "safari", click.Desktop},
		{linuxFirefox, 0, "linux", "firefox", click.Desktop},
		{linuxFirefox, hint("Android"), "android", "firefox", click.Tablet},
		{"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36", 0, "chromeos", "chrome", click.Desktop},
		{iPhone, 0, "ios", "safari", click.Mobile},
		{"Mozilla/5.0 (iPad; CPU OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/140.0 Mobile/15E148 Safari/604.1", 0, "ios", "chrome", click.Tablet},
		{"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) FxiOS/142.0 Safari/605.1.15", 0, "ios", "firefox", click.Tablet},
		{"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36", 0, "android", "chrome", click.Mobile},
		{"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36", 0, "android", "chrome", click.Tablet},
		{"Mozilla/5.0 (Linux; Android 14; SM-S918B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36", 0, "android", "samsung", click.Mobile},
		{"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 Instagram 390.0.0.28.85 (iPhone16,2)", 0, "ios", "instagram", click.Mobile},
		{"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 [FBAN/FBIOS;FBAV/520.0]", 0, "ios", "facebook", click.Mobile},
		{"Mozilla/5.0 (Linux; Android 14; Pixel 8; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/140.0.0.0 Mobile Safari/537.36", 0, "android", "in-app", click.Mobile},
		{"Mozilla/5.0 (Linux; U; Android 4.0.3; de-de; GT-I9100 Build/IML74K) AppleWebKit/534.30 (KHTML, like Gecko) Version/4.0 Mobile Safari/534.30", 0, "android", "other", click.Mobile},
		{"", 0, "other", "other", click.DeviceOther},
		{"Mozilla/5.0", hint("Windows"), "windows", "other", click.Desktop},
	} {
		f := click.Read([]byte(test.agent))
		os, browser, device := click.SystemOf(test.evidence, f).String(), click.BrowserOf(f), click.DeviceOf(test.evidence, f)
		if os != test.os || browser != test.browser || device != test.device {
			t.Errorf("%q: %s %s %s, expected %s %s %s", test.agent, os, browser, device, test.os, test.browser, test.device)
		}
	}
}

func TestHeadersBecomeDimensions(t *testing.T) {
	for header, want := range map[string]string{
		"en-GB,en;q=0.9": "en", "DE": "de", "fil": "fil", " fr ;q=1": "fr", "*": "", "e": "", "zhoo": "", "en_US": "", "": "", "12": "", "en;q=0": "en",
	} {
		subtag, n := click.Language([]byte(header))
		if got := string(subtag[:n]); got != want {
			t.Errorf("Accept-Language %q: %q, expected %q", header, got, want)
		}
	}
	for header, want := range map[string]string{
		"https://WWW.Example.com/a?b": "www.example.com", "http://example.com:8080/": "example.com", "android-app://com.google.android.gm/": "com.google.android.gm",
		"https://user:secret@example.com/": "example.com", "ftp://example.com/": "", "example.com": "", "https://": "", "https:///a": "", "https://.../": "",
		"https://[2001:db8::1]:443/": "[2001:db8::1]", "https://exa mple.com/": "", "https://example.com?x=1@y": "example.com", "https://bücher.example/": "",
	} {
		if got := string(click.AppendReferrer(nil, []byte(header))); got != want {
			t.Errorf("Referer %q: %q, expected %q", header, got, want)
		}
	}
	for value, want := range map[string]string{"de": "DE", "US": "US", "XX": "", "zz": "", "": "", "D1": "", "DEU": "", "T1": ""} {
		code, ok := click.Country([]byte(value))
		if got := string(code[:]); ok != (want != "") || ok && got != want {
			t.Errorf("country %q: %q %v, expected %q", value, got, ok, want)
		}
	}
}

// FuzzClassify checks that no request makes the functions fail or allocate, and that what they return has a name and fits its bounds.
func FuzzClassify(f *testing.F) {
	f.Add(windowsChrome, `"Linux"`, "en-GB,en", "https://example.com/", "text/html", uint16(3))
	f.Add("cubots", "", "*", "http://a:b@c:1/", "", uint16(0))
	f.Fuzz(func(t *testing.T, agent, hint, language, referer, accept string, bits uint16) {
		userAgent := []byte(agent)
		facts := click.Read(userAgent)
		if facts&^click.AllFacts != 0 || facts&click.FactListed != 0 {
			t.Errorf("%q: facts %b", agent, facts)
		}
		e := click.Evidence(bits)&0x7f | click.PlatformHint([]byte(hint)) | click.Accept([]byte(accept)) | click.Purpose([]byte(accept), true) | click.BrandHint([]byte(accept))
		if r := click.Classify(e, facts); r.String() == "" || r.Class().String() == "" || r == click.Canary || r == click.Listed {
			t.Errorf("%q: reason %d", agent, r)
		}
		if click.SystemOf(e, facts).String() == "" || click.BrowserOf(facts) == "" || click.DeviceOf(e, facts) == "" {
			t.Errorf("%q: a dimension has no value", agent)
		}
		if _, n := click.Language([]byte(language)); n != 0 && n != 2 && n != 3 {
			t.Errorf("language %q: %d letters", language, n)
		}
		if host := click.AppendReferrer(nil, []byte(referer)); len(host) > click.MaxReferrer {
			t.Errorf("referrer %q: %d bytes", referer, len(host))
		}
		click.Country([]byte(hint))
	})
}

func TestReadDoesNotAllocate(t *testing.T) {
	userAgent, referer, host := []byte(iPhone), []byte("https://example.com/a"), make([]byte, 0, click.MaxReferrer)
	var reason click.Reason
	if n := testing.AllocsPerRun(100, func() {
		reason = click.Classify(0, click.Read(userAgent))
		host = click.AppendReferrer(host[:0], referer)
	}); n != 0 || reason.String() == "" {
		t.Errorf("%v allocations, expected none", n)
	}
}
