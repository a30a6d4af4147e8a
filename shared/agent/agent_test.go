package agent

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

var platformNames = [...]string{Desktop: "desktop", Bot: "bot", IOS: "ios", Android: "android"}

func (a Agent) String() string {
	return fmt.Sprintf("%s in browser %d", platformNames[a.Platform], a.Browser)
}

func TestRealAgentsAreRecognized(t *testing.T) {
	t.Parallel()
	covered := make(map[Browser]bool)
	for _, real := range realAgents {
		if got := Parse([]byte(real.userAgent), []byte(real.hint)); got != real.want {
			t.Errorf("%s: %v, expected %v\n%s\nseen at %s", real.name, got, real.want, real.userAgent, real.source)
		}
		if real.source == "" {
			t.Errorf("%s has no source", real.name)
		}
		covered[real.want.Browser] = true
	}
	for b := SystemBrowser; b <= OtherApp; b++ {
		if !covered[b] {
			t.Errorf("no real agent has browser %d", b)
		}
		if want := b != SystemBrowser && b != Firefox; b.InApp() != want {
			t.Errorf("browser %d: InApp is %v, expected %v", b, b.InApp(), want)
		}
	}
}

func TestSyntheticAgentsFollowThePrecedence(t *testing.T) {
	t.Parallel()
	const phone = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36"
	long := bytes.Repeat([]byte("bo Andro iPhon "), 8<<10/15)
	for _, test := range []struct {
		name, userAgent, hint string
		want                  Agent
	}{
		{"no User-Agent", "", "", Agent{}},
		{"only a hint", "", `"Android"`, Agent{Platform: Android}},
		{"a hint without quotes", "", "Android", Agent{}},
		{"a hint with a parameter", "", `"Android";v=1`, Agent{}},
		{"bytes beyond ASCII", "\x80\xff\xc3\xa9\x00Android\xff", "", Agent{Platform: Android}},
		{"the first letter of a bot", "b", "", Agent{}},
		{"8 KiB of incomplete words", string(long), "", Agent{}},
		{"8 KiB before a bot", string(long) + "bot", "", Agent{Platform: Bot}},
		{"8 KiB before a phone", string(long) + "Android", "", Agent{Platform: Android}},
		{"a hint does not make a bot a phone", "Twitterbot/1.0", `"iOS"`, Agent{Platform: Bot}},
		{"a hint does not make a Windows Phone an Android phone", "Mozilla/5.0 (Windows Phone 10.0; Android 4.2.1)", `"Android"`, Agent{}},
		{"a hint of Linux does not overrule Android", phone, `"Linux"`, Agent{Platform: Android}},
		{"a bot after other words", phone + " Instagram 280.0 [FBAN/FBIOS] examplebot", "", Agent{Platform: Bot}},
		{"a bot in capitals", phone + " EXAMPLEBOT/1.0", "", Agent{Platform: Bot}},
		{"a plural bot", phone + " (example-bots)", "", Agent{Platform: Bot}},
		{"robots", "robots", "", Agent{Platform: Bot}},
		{"bot within a word", phone + " Botany/1.0 bottle both Sabotage", "", Agent{Platform: Android}},
		{"a bot on a Cubot phone", "Mozilla/5.0 (Linux; Android 9; Cubot X19) examplebot", "", Agent{Platform: Bot}},
		{"WhatsApp not at the start", phone + " WhatsApp/2.23.20.0", "", Agent{Platform: Android}},
		{"Viber not at the start", phone + " Viber/20.0", "", Agent{Platform: Android}},
		{"a word that ends in Line", phone + " Online/1.0", "", Agent{Platform: Android}},
		{"wv within a word", strings.Replace(phone, "Pixel 8", "Pixel viewv", 1), "", Agent{Platform: Android}},
		{"the first platform wins", "Android iPhone", "", Agent{Platform: Android}},
		{"the first app wins", phone + " Instagram 1.0 Snapchat/1.0", "", Agent{Android, Instagram}},
		{"a web view is not Firefox", "Mozilla/5.0 (Linux; Android 14; wv) Firefox/129.0", "", Agent{Android, OtherApp}},
		{"TikTok by another word", "Mozilla/5.0 (iPhone) Mobile/15E148 musical_ly_25.1.1 JsSdk/2.0", "", Agent{IOS, TikTok}},
		{"Twitter on an iPad that requests desktop sites", "Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 Twitter for iPad/8.10", "", Agent{IOS, X}},
		{"a phone's name in lower case", "Mozilla/5.0 (Linux; Android 9; Cubot_J3) Chrome/80.0 Mobile Safari/537.36", "", Agent{Platform: Android}},
		{"Messenger by another word", phone + " [FB_IAB/Orca-Android;FBAV/431.0]", "", Agent{Android, Messenger}},
		{"Instagram by another word", phone + " MetaIAB Instagram", "", Agent{Android, Instagram}},
	} {
		if got := Parse([]byte(test.userAgent), []byte(test.hint)); got != test.want {
			t.Errorf("%s: %v, expected %v", test.name, got, test.want)
		}
	}
}

// Without a word, an agent would not be recognized, or the word is one of several names of the same thing.
func TestEachWordIsRecognizedAtItsBoundary(t *testing.T) {
	t.Parallel()
	for _, w := range words {
		want := Agent{w.platform, w.browser}
		in := "x/1 (" + w.text + ") y"
		switch {
		case w.boundary == atStart:
			in = w.text + "1"
		case w.flags == isWebView:
			in = "Android; " + w.text
		case w.browser != SystemBrowser, w.flags != 0 && w.flags != isBot && w.platform == Desktop:
			in = "Android " + in
		}
		switch {
		case w.flags == isBot:
			want = Agent{Platform: Bot}
		case w.flags == notPhone:
			want = Agent{}
		case w.flags == isWebView:
			want = Agent{Android, OtherApp}
		case w.flags == isFirefox:
			want = Agent{Android, Firefox}
		case w.platform == IOS && w.flags != isBrowser:
			want = Agent{IOS, OtherApp}
		case w.platform == IOS:
			want = Agent{Platform: IOS}
		case w.browser != SystemBrowser, w.flags != 0:
			want.Platform = Android
		}
		if got := Parse([]byte(in), nil); got != want {
			t.Errorf("%q: %v, expected %v", in, got, want)
		}
		for cut := range len(w.text) {
			if Parse([]byte(w.text[:cut]), nil).Platform == Bot {
				t.Errorf("%q alone is recognized as a bot", w.text[:cut])
			}
		}
	}
}

// parse passes over a long word in one step, so the word must have the flags of the shorter words in it.
func TestLongWordsHaveTheFlagsOfTheWordsInThem(t *testing.T) {
	t.Parallel()
	for _, long := range words {
		if !strings.Contains(long.text, " ") || long.flags == isBot {
			continue
		}
		var inside word
		for _, w := range words {
			if len(w.text) >= len(long.text) || !strings.Contains(long.text, w.text) || w.boundary != anywhere {
				continue
			}
			inside.flags |= w.flags
			inside.platform = max(inside.platform, w.platform)
			inside.browser = max(inside.browser, w.browser)
		}
		if inside.flags&^long.flags != 0 || inside.platform != Desktop && inside.platform != long.platform && long.flags != notPhone || inside.browser != SystemBrowser && long.browser == SystemBrowser {
			t.Errorf("%q has %+v and passes over %+v", long.text, long, inside)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	hint := []byte(`"Android"`)
	for _, real := range realAgents {
		userAgent := []byte(real.userAgent)
		if n := testing.AllocsPerRun(10, func() { Parse(userAgent, hint) }); n != 0 {
			t.Errorf("%s: %v allocations", real.name, n)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, real := range realAgents {
		f.Add([]byte(real.userAgent), []byte(real.hint))
	}
	f.Fuzz(func(t *testing.T, userAgent, hint []byte) {
		a := Parse(userAgent, hint)
		if a.Platform > Android || a.Browser > OtherApp {
			t.Fatalf("%q, %q: %v", userAgent, hint, a)
		}
		if (a.Platform == Desktop || a.Platform == Bot) && a.Browser != SystemBrowser {
			t.Errorf("%q, %q: %v must have no browser", userAgent, hint, a)
		}
		if again := Parse(append([]byte("x "), userAgent...), hint); a.Platform == Android && again.Platform != Android {
			t.Errorf("%q, %q: %v, but %v with a prefix", userAgent, hint, a, again)
		}
		if (bytes.Contains(userAgent, []byte("Android")) || string(hint) == `"Android"`) && a.Platform == Desktop && !bytes.ContainsAny(userAgent, "WACB") {
			t.Errorf("%q, %q: desktop", userAgent, hint)
		}
		if bytes.Contains(userAgent, []byte("Twitterbot/")) && a.Platform != Bot {
			t.Errorf("%q, %q: %v", userAgent, hint, a)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, name := range []string{"Chrome on Windows", "iPhone", "Chrome on a Pixel", "Instagram on an iPhone", "Googlebot as a phone"} {
		for _, real := range realAgents {
			if real.name != name {
				continue
			}
			b.Run(name, func(b *testing.B) {
				userAgent, hint := []byte(real.userAgent), []byte(real.hint)
				b.ReportAllocs()
				for b.Loop() {
					Parse(userAgent, hint)
				}
			})
		}
	}
}
