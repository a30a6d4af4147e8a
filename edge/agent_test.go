package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

var platformNames = [...]string{desktop: "desktop", bot: "bot", ios: "ios", android: "android"}

func (a agent) String() string {
	return fmt.Sprintf("%s in browser %d", platformNames[a.platform], a.browser)
}

func readAgent(userAgent, hint []byte) agent { return readWords(userAgent).with(hint) }

func TestRealAgentsAreKnown(t *testing.T) {
	t.Parallel()
	shown := make(map[browser]bool)
	for _, real := range realAgents {
		if got := readAgent([]byte(real.userAgent), []byte(real.hint)); got != real.want {
			t.Errorf("%s: %v, expected %v\n%s\nseen at %s", real.name, got, real.want, real.userAgent, real.source)
		}
		if real.source == "" {
			t.Errorf("%s has no source", real.name)
		}
		shown[real.want.browser] = true
	}
	for b := systemBrowser; b <= otherApp; b++ {
		if !shown[b] {
			t.Errorf("no agent in browser %d", b)
		}
		if want := b != systemBrowser && b != firefox; b.inApp() != want {
			t.Errorf("browser %d is in an app: %v, expected %v", b, b.inApp(), want)
		}
	}
}

func TestMadeUpAgents(t *testing.T) {
	t.Parallel()
	const phone = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36"
	long := bytes.Repeat([]byte("bo Andro iPhon "), 8<<10/15)
	for _, test := range []struct {
		name, userAgent, hint string
		want                  agent
	}{
		{"nothing", "", "", agent{}},
		{"only a hint", "", `"Android"`, agent{platform: android}},
		{"a hint without quotes", "", "Android", agent{}},
		{"a hint with more", "", `"Android";v=1`, agent{}},
		{"bytes beyond ASCII", "\x80\xff\xc3\xa9\x00Android\xff", "", agent{platform: android}},
		{"every letter of a bot", "b", "", agent{}},
		{"8 KiB of almost", string(long), "", agent{}},
		{"8 KiB before a bot", string(long) + "bot", "", agent{platform: bot}},
		{"8 KiB before a phone", string(long) + "Android", "", agent{platform: android}},
		{"a hint does not make a bot a phone", "Twitterbot/1.0", `"iOS"`, agent{platform: bot}},
		{"a hint does not make a Windows Phone one", "Mozilla/5.0 (Windows Phone 10.0; Android 4.2.1)", `"Android"`, agent{}},
		{"a hint of Linux says nothing against Android", phone, `"Linux"`, agent{platform: android}},
		{"a bot after all else", phone + " Instagram 280.0 [FBAN/FBIOS] examplebot", "", agent{platform: bot}},
		{"a bot in capitals", phone + " EXAMPLEBOT/1.0", "", agent{platform: bot}},
		{"many bots", phone + " (example-bots)", "", agent{platform: bot}},
		{"robots", "robots", "", agent{platform: bot}},
		{"bot within a word", phone + " Botany/1.0 bottle both Sabotage", "", agent{platform: android}},
		{"a bot of Cubot", "Mozilla/5.0 (Linux; Android 9; Cubot X19) examplebot", "", agent{platform: bot}},
		{"WhatsApp's name in another agent", phone + " WhatsApp/2.23.20.0", "", agent{platform: android}},
		{"Viber's name in another agent", phone + " Viber/20.0", "", agent{platform: android}},
		{"the end of online", phone + " Online/1.0", "", agent{platform: android}},
		{"wv of another word", strings.Replace(phone, "Pixel 8", "Pixel viewv", 1), "", agent{platform: android}},
		{"the first platform counts", "Android iPhone", "", agent{platform: android}},
		{"the first app counts", phone + " Instagram 1.0 Snapchat/1.0", "", agent{android, instagram}},
		{"an app's view is no Firefox", "Mozilla/5.0 (Linux; Android 14; wv) Firefox/129.0", "", agent{android, otherApp}},
		{"TikTok by another word", "Mozilla/5.0 (iPhone) Mobile/15E148 musical_ly_25.1.1 JsSdk/2.0", "", agent{ios, tiktok}},
		{"Twitter on an iPad that asks for desktop sites", "Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 Twitter for iPad/8.10", "", agent{ios, twitter}},
		{"a phone's name in small letters", "Mozilla/5.0 (Linux; Android 9; Cubot_J3) Chrome/80.0 Mobile Safari/537.36", "", agent{platform: android}},
		{"Messenger by another word", phone + " [FB_IAB/Orca-Android;FBAV/431.0]", "", agent{android, messenger}},
		{"Instagram by another word", phone + " MetaIAB Instagram", "", agent{android, instagram}},
	} {
		if got := readAgent([]byte(test.userAgent), []byte(test.hint)); got != test.want {
			t.Errorf("%s: %v, expected %v", test.name, got, test.want)
		}
	}
}

// Each word is needed: without it, an agent that is known would not be, or it is one of those that name the same thing.
func TestEachWordIsFoundWhereItMayStand(t *testing.T) {
	t.Parallel()
	for _, w := range words {
		want := agent{w.platform, w.browser}
		in := "x/1 (" + w.text + ") y"
		switch {
		case w.place == atFirst:
			in = w.text + "1"
		case w.clue == itsWebView:
			in = "Android; " + w.text
		case w.browser != systemBrowser, w.clue != 0 && w.clue != itsBot && w.platform == desktop:
			in = "Android " + in
		}
		switch {
		case w.clue == itsBot:
			want = agent{platform: bot}
		case w.clue == itsNoPhone:
			want = agent{}
		case w.clue == itsWebView:
			want = agent{android, otherApp}
		case w.clue == itsFirefox:
			want = agent{android, firefox}
		case w.platform == ios && w.clue != itsBrowser:
			want = agent{ios, otherApp}
		case w.platform == ios:
			want = agent{platform: ios}
		case w.browser != systemBrowser, w.clue != 0:
			want.platform = android
		}
		if got := readAgent([]byte(in), nil); got != want {
			t.Errorf("%q: %v, expected %v", in, got, want)
		}
		for cut := range len(w.text) {
			if readAgent([]byte(w.text[:cut]), nil).platform == bot {
				t.Errorf("%q is enough for a bot", w.text[:cut])
			}
		}
	}
}

// A word that is passed over whole must say whatever the shorter ones in it do.
func TestLongWordsSayWhatIsInThem(t *testing.T) {
	t.Parallel()
	for _, long := range words {
		if !strings.Contains(long.text, " ") || long.clue == itsBot {
			continue
		}
		var inside word
		for _, w := range words {
			if len(w.text) >= len(long.text) || !strings.Contains(long.text, w.text) || w.place != anywhere {
				continue
			}
			inside.clue |= w.clue
			inside.platform = max(inside.platform, w.platform)
			inside.browser = max(inside.browser, w.browser)
		}
		if inside.clue&^long.clue != 0 || inside.platform != desktop && inside.platform != long.platform && long.clue != itsNoPhone || inside.browser != systemBrowser && long.browser == systemBrowser {
			t.Errorf("%q says %+v and passes over %+v", long.text, long, inside)
		}
	}
}

func TestReadingAnAgentDoesNotAllocate(t *testing.T) {
	hint := []byte(`"Android"`)
	for _, real := range realAgents {
		userAgent := []byte(real.userAgent)
		if n := testing.AllocsPerRun(10, func() { readAgent(userAgent, hint) }); n != 0 {
			t.Errorf("%s: %v allocations", real.name, n)
		}
	}
}

func FuzzReadAgent(f *testing.F) {
	for _, real := range realAgents {
		f.Add([]byte(real.userAgent), []byte(real.hint))
	}
	f.Fuzz(func(t *testing.T, userAgent, hint []byte) {
		a := readAgent(userAgent, hint)
		if a.platform > android || a.browser > otherApp {
			t.Fatalf("%q, %q: %v", userAgent, hint, a)
		}
		if (a.platform == desktop || a.platform == bot) && a.browser != systemBrowser {
			t.Errorf("%q, %q: a browser for %v", userAgent, hint, a)
		}
		if again := readAgent(append([]byte("x "), userAgent...), hint); a.platform == android && again.platform != android {
			t.Errorf("%q, %q: %v, and with something before it %v", userAgent, hint, a, again)
		}
		if (bytes.Contains(userAgent, []byte("Android")) || string(hint) == `"Android"`) && a.platform == desktop && !bytes.ContainsAny(userAgent, "WACB") {
			t.Errorf("%q, %q: desktop", userAgent, hint)
		}
		if bytes.Contains(userAgent, []byte("Twitterbot/")) && a.platform != bot {
			t.Errorf("%q, %q: %v", userAgent, hint, a)
		}
	})
}

func BenchmarkReadAgent(b *testing.B) {
	for _, name := range []string{"Chrome on Windows", "iPhone", "Chrome on a Pixel", "Instagram on an iPhone", "Googlebot as a phone"} {
		for _, real := range realAgents {
			if real.name != name {
				continue
			}
			b.Run(name, func(b *testing.B) {
				userAgent, hint := []byte(real.userAgent), []byte(real.hint)
				b.ReportAllocs()
				for b.Loop() {
					readAgent(userAgent, hint)
				}
			})
		}
	}
}
