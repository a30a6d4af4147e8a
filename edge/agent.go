package main

import "slices"

// platform decides the answer (decisions.md 3).
type platform uint8

const (
	desktop platform = iota // and whatever is unknown
	bot                     // a crawler, or what makes the preview of a link
	ios
	android
)

// browser is what shows a page on a phone: a browser, or the view of an app, out of which the hand-off to another app does not work
// by itself. For desktop and bot it is always systemBrowser.
type browser uint8

const (
	systemBrowser browser = iota
	// firefox is Firefox for Android. Where an intent:// has a browser_fallback_url it goes there, though the app is installed, unless
	// its owner set "open links in apps" (bugzilla.mozilla.org 1795161, mozilla-mobile/fenix#15952). Without one it opens the app.
	firefox
	facebook
	messenger
	instagram
	threads
	tiktok
	snapchat
	linkedin
	twitter
	pinterest
	line
	wechat
	googleApp
	otherApp // the view of an app that has no name here
)

// inApp reports whether b is the view of an app.
func (b browser) inApp() bool { return b >= facebook }

// agent is who asks, as far as an answer depends on it.
type agent struct {
	platform platform
	browser  browser
}

// wording is what the words of a User-Agent say.
type wording struct {
	agent
	seen clue
}

// readWords reads a User-Agent as it was sent; it may be empty. Where words contradict each other a bot's win, then those of what only
// says that it is a phone, then the first.
func readWords(userAgent []byte) (said wording) {
	for at := 0; at < len(userAgent)-1; at++ {
		if secondLetters[userAgent[at]]>>(userAgent[at+1]%64)&1 == 0 {
			continue // as at nearly every place
		}
		w := wordAt(userAgent, at)
		if w == nil {
			continue
		}
		if w.clue == itsBot {
			return wording{agent: agent{platform: bot}}
		}
		said.seen |= w.clue
		if said.platform == desktop {
			said.platform = w.platform
		}
		if said.browser == systemBrowser {
			said.browser = w.browser
		}
		at += len(w.text) - 1
	}
	return said
}

// with tells who asks by the header Sec-CH-UA-Platform too, as it was sent; it may be empty.
//
// A phone or tablet that asks for desktop sites is known by the name of a browser that only iOS has, by the Mobile/ of a web view on a
// Mac, or by the hint. Nothing tells Safari on an iPad, whose agent is that of a Mac (github.com/faisalman/ua-parser-js/issues/417), nor
// Chrome for Android, whose agent and hint are then those of Linux (chromium: components/embedder_support/android/util/user_agent_utils.cc).
func (said wording) with(hintPlatform []byte) agent {
	a, seen := said.agent, said.seen
	if a.platform == bot {
		return a
	}
	if a.platform == desktop {
		switch {
		case seen&(itsMac|itsMobile) == itsMac|itsMobile, string(hintPlatform) == `"iOS"`:
			a.platform = ios
		case string(hintPlatform) == `"Android"`:
			a.platform = android
		}
	}
	switch {
	case a.platform == desktop || seen&itsNoPhone != 0:
		return agent{}
	case a.browser != systemBrowser:
	case a.platform == android && seen&itsWebView != 0, a.platform == ios && seen&itsBrowser == 0:
		a.browser = otherApp
	case a.platform == android && seen&itsFirefox != 0:
		a.browser = firefox
	}
	return a
}

// clue is what a word says beside a platform and a browser.
type clue uint8

const (
	itsBot clue = 1 << iota
	itsNoPhone
	itsMac
	itsMobile
	itsBrowser
	itsWebView
	itsFirefox
)

// word is a part of an agent that tells who asks. Letters count as they stand.
type word struct {
	text     string
	place    boundary
	clue     clue
	platform platform
	browser  browser
}

// boundary says where in an agent a word has to stand.
type boundary uint8

const (
	anywhere   boundary = iota
	atFirst             // the agent begins with it
	afterBreak          // no letter before it
	endsWord            // no letter after it, but for a plural s
)

// wordAt returns the longest word that stands at a place of an agent; nil when none does.
func wordAt(agent []byte, at int) *word {
	group := vocabulary[agent[at]]
	for i := range group {
		if w := &group[i]; w.isAt(agent, at) {
			return w
		}
	}
	return nil
}

func (w *word) isAt(agent []byte, at int) bool {
	end := at + len(w.text)
	if end > len(agent) || agent[at+1] != w.text[1] || string(agent[at:end]) != w.text {
		return false
	}
	switch w.place {
	case atFirst:
		return at == 0
	case afterBreak:
		return at == 0 || !isLetter(agent[at-1])
	case endsWord:
		if end < len(agent) && agent[end]|0x20 == 's' {
			end++
		}
		return end == len(agent) || !isLetter(agent[end])
	}
	return true
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// vocabulary has the words by their first letter, longer ones before shorter ones. secondLetters has for each first letter the second
// ones, as bits, modulo 64.
var vocabulary, secondLetters = func() (byFirst [256][]word, seconds [256]uint64) {
	for _, w := range slices.SortedStableFunc(slices.Values(words), func(a, b word) int { return len(b.text) - len(a.text) }) {
		byFirst[w.text[0]] = append(byFirst[w.text[0]], w)
		seconds[w.text[0]] |= 1 << (w.text[1] % 64)
	}
	return byFirst, seconds
}()
