// Package agent tells from the headers User-Agent and Sec-CH-UA-Platform what a client is: a bot, a desktop browser, or a browser or
// an app's web view on iOS or Android. It does no I/O, never fails and never allocates; it does not identify people or devices.
package agent

import "slices"

// Platform is the kind of client. It decides which response a link gets.
type Platform uint8

const (
	Desktop Platform = iota // also every client that is not recognized
	Bot                     // a crawler, or a service that makes previews of links
	IOS
	Android
)

// Browser is the program that shows a page on a phone: a browser, or an app's web view, from which opening another app does not work
// by itself. For Desktop and Bot it is always SystemBrowser.
type Browser uint8

const (
	SystemBrowser Browser = iota
	// Firefox is Firefox for Android. If an intent:// URL has a browser_fallback_url, Firefox opens that URL even when the app is
	// installed, unless the user has set "open links in apps" (bugzilla.mozilla.org 1795161, mozilla-mobile/fenix#15952). Without
	// browser_fallback_url Firefox opens the app.
	Firefox
	Facebook
	Messenger
	Instagram
	Threads
	TikTok
	Snapchat
	LinkedIn
	X
	Pinterest
	Line
	WeChat
	GoogleApp
	OtherApp // the web view of an app without a name of its own here
)

// InApp reports whether b is the web view of an app.
func (b Browser) InApp() bool { return b >= Facebook }

// Agent is what a response depends on.
type Agent struct {
	Platform Platform
	Browser  Browser
}

// Parse returns the agent of a request with these headers, User-Agent and Sec-CH-UA-Platform, as sent. Both may be empty.
func Parse(userAgent, platformHint []byte) Agent { return Read(userAgent).With(platformHint) }

// Parsed is the result of reading a User-Agent alone.
type Parsed struct {
	agent Agent
	flags agentFlags
}

// Read reads a User-Agent, which may be empty. Precedence: bot, then devices that merely claim to be phones, then first match.
func Read(userAgent []byte) (parsed Parsed) {
	for at := 0; at < len(userAgent)-1; at++ {
		if secondLetters[userAgent[at]]>>(userAgent[at+1]%64)&1 == 0 {
			continue // no word starts with these two letters: true at nearly every position
		}
		w := wordAt(userAgent, at)
		if w == nil {
			continue
		}
		if w.flags == isBot {
			return Parsed{agent: Agent{Platform: Bot}}
		}
		parsed.flags |= w.flags
		if parsed.agent.Platform == Desktop {
			parsed.agent.Platform = w.platform
		}
		if parsed.agent.Browser == SystemBrowser {
			parsed.agent.Browser = w.browser
		}
		at += len(w.text) - 1
	}
	return parsed
}

// With combines the User-Agent with the header Sec-CH-UA-Platform.
//
// A phone or tablet that requests desktop sites is recognized by the name of a browser that exists on iOS only, by the "Mobile/" of a
// web view that claims to be a Mac, or by the header. Two cases cannot be recognized: Safari on an iPad, whose User-Agent is that of a
// Mac (github.com/faisalman/ua-parser-js/issues/417), and Chrome for Android, which then sends the User-Agent and header of Linux
// (chromium: components/embedder_support/android/util/user_agent_utils.cc).
func (parsed Parsed) With(platformHint []byte) Agent {
	a, flags := parsed.agent, parsed.flags
	if a.Platform == Bot {
		return a
	}
	if a.Platform == Desktop {
		switch {
		case flags&(isMac|isMobile) == isMac|isMobile, string(platformHint) == `"iOS"`:
			a.Platform = IOS
		case string(platformHint) == `"Android"`:
			a.Platform = Android
		}
	}
	switch {
	case a.Platform == Desktop || flags&notPhone != 0:
		return Agent{}
	case a.Browser != SystemBrowser:
	case a.Platform == Android && flags&isWebView != 0, a.Platform == IOS && flags&isBrowser == 0:
		a.Browser = OtherApp
	case a.Platform == Android && flags&isFirefox != 0:
		a.Browser = Firefox
	}
	return a
}

// agentFlags is what a word says in addition to a platform and a browser.
type agentFlags uint8

const (
	isBot agentFlags = 1 << iota
	notPhone
	isMac
	isMobile
	isBrowser
	isWebView
	isFirefox
)

// word is a part of a User-Agent that identifies the client. It is compared case-sensitively.
type word struct {
	text     string
	boundary boundary
	flags    agentFlags
	platform Platform
	browser  Browser
}

// boundary says where in a User-Agent a word counts.
type boundary uint8

const (
	anywhere       boundary = iota
	atStart                 // at the start of the User-Agent
	afterNonLetter          // with no letter before it
	endsWord                // with no letter after it, except a plural s
)

// wordAt returns the longest word that starts at this position of a User-Agent, nil if there is none.
func wordAt(userAgent []byte, at int) *word {
	group := vocabulary[userAgent[at]]
	for i := range group {
		if w := &group[i]; w.isAt(userAgent, at) {
			return w
		}
	}
	return nil
}

func (w *word) isAt(userAgent []byte, at int) bool {
	end := at + len(w.text)
	if end > len(userAgent) || userAgent[at+1] != w.text[1] || string(userAgent[at:end]) != w.text {
		return false
	}
	switch w.boundary {
	case atStart:
		return at == 0
	case afterNonLetter:
		return at == 0 || !isLetter(userAgent[at-1])
	case endsWord:
		if end < len(userAgent) && userAgent[end]|0x20 == 's' {
			end++
		}
		return end == len(userAgent) || !isLetter(userAgent[end])
	}
	return true
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// vocabulary has the words by first letter, longer words before shorter ones. secondLetters has for each first letter the second
// letters that occur, as bits modulo 64.
var vocabulary, secondLetters = func() (byFirst [256][]word, seconds [256]uint64) {
	for _, w := range slices.SortedStableFunc(slices.Values(words), func(a, b word) int { return len(b.text) - len(a.text) }) {
		byFirst[w.text[0]] = append(byFirst[w.text[0]], w)
		seconds[w.text[0]] |= 1 << (w.text[1] % 64)
	}
	return byFirst, seconds
}()
