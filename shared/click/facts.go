package click

import (
	"slices"

	"deeplink/shared/agent"
)

// Facts is what a User-Agent says to the rules and dimensions, as bits. Control stores it with the agent.
type Facts uint32

const (
	factAssistant  Facts = 1 << 0
	factPreview    Facts = 1 << 1
	factScanner    Facts = 1 << 2
	factCrawler    Facts = 1 << 3
	factAutomation Facts = 1 << 4
	factBrowser    Facts = 1 << 5 // it starts as browsers do
	// FactListed: the agent matches the public list of crawlers. Only control sets it.
	FactListed    Facts = 1 << 6
	factWindowsNT Facts = 1 << 7
	factMacintosh Facts = 1 << 8
	factX11Linux  Facts = 1 << 9
	factIPad      Facts = 1 << 10
	factMobile    Facts = 1 << 11

	// The system and the browser are in four and five bits.
	osShift, osMask           = 12, 15
	browserShift, browserMask = 16, 31
	// factDesktopMac: a Mac whose browser is one of iOS, or a web view of iOS: it is a phone or tablet that requests desktop sites.
	factDesktopMac Facts = 1 << 21
)

// AllFacts has all bits that facts can have.
const AllFacts = Facts(1<<22 - 1)

// Read returns the facts of a User-Agent, which may be empty.
func Read(userAgent []byte) Facts {
	var f Facts
	var seen wordFlags
	for at := range userAgent {
		w := wordAt(userAgent, at)
		if w != nil {
			f |= w.facts
			seen |= w.flags
		}
	}
	parsed := agent.Parse(userAgent, nil)
	if parsed.Platform == agent.Bot {
		f |= factCrawler
	}
	if startsLikeBrowser(userAgent) {
		f |= factBrowser
	}
	f |= Facts(osOf(seen)) << osShift
	f |= Facts(browserOf(seen, parsed.Browser)) << browserShift
	if seen&hasMac != 0 && parsed.Platform == agent.IOS {
		f |= factDesktopMac
	}
	return f
}

// wordFlags is what a word says about the system and the browser.
type wordFlags uint32

const (
	hasWindows wordFlags = 1 << iota
	hasMac
	hasIOS
	hasAndroid
	hasLinux
	hasChromeOS
	hasChrome
	hasSafari
	hasFirefox
	hasEdge
	hasOpera
	hasSamsung
	hasFacebook
	hasMessenger
	hasInstagram
	hasThreads
	hasTikTok
	hasSnapchat
	hasLinkedIn
	hasX
	hasPinterest
	hasLine
	hasWeChat
	hasGoogleApp
)

// word is a part of a User-Agent, in lower case.
type word struct {
	text  string
	where where
	facts Facts
	flags wordFlags
}

// where says where in a User-Agent a word counts.
type where uint8

const (
	anywhere   where = iota
	atStart          // at the start of the User-Agent
	startsWord       // with no letter before it
	endsWord         // with no letter after it, except a plural s
)

// words are what Read looks for. The first words of each of the rules 4 to 8 are those of the service's contract. The others are of
// documents of the client's owner, or of the collections that testdata/README.md names; agent.Parse knows further crawlers.
var words = []word{
	// 4: a user has asked an assistant to read the page.
	{text: "chatgpt-user", facts: factAssistant},
	{text: "claude-user", facts: factAssistant},
	{text: "perplexity-user", facts: factAssistant},
	{text: "mistralai-user", facts: factAssistant},
	{text: "meta-externalfetcher", facts: factAssistant},
	{text: "duckassistbot", facts: factAssistant},
	{text: "google-agent", facts: factAssistant}, // as are the next four: developers.google.com/crawling/docs/crawlers-fetchers
	{text: "googleagent-mariner", facts: factAssistant},
	{text: "google-gemininotebook", facts: factAssistant},
	{text: "google-notebooklm", facts: factAssistant},
	{text: "gemini-deep-research", facts: factAssistant},
	{text: "google-gemini-cli", facts: factAssistant},   // geminicli.com
	{text: "amzn-user", facts: factAssistant},           // developer.amazon.com/amazonbot
	{text: "amazonbuyforme", facts: factAssistant},      // buyforme.amazon
	{text: "bedrock-agentcore", facts: factAssistant},   // docs.aws.amazon.com/bedrock-agentcore
	{text: "manus-user", facts: factAssistant},          // knownagents.com/agents/manus-user
	{text: "devin/", facts: factAssistant},              // docs.devin.ai
	{text: "kagi-fetcher", facts: factAssistant},        // help.kagi.com/kagi/ai
	{text: "cohere-ai", facts: factAssistant},           // github.com/faisalman/ua-parser-js
	{text: "opencode-smartfetch", facts: factAssistant}, // opencode.ai
	{text: "twinagent", facts: factAssistant},           // twin.so
	{text: "anchor browser", facts: factAssistant},      // anchorbrowser.io
	{text: "phindbot", facts: factAssistant},            // knownagents.com/agents/phindbot
	{text: "linerbot", facts: factAssistant},            // docs.getliner.com/docs/linerbot
	{text: "linkreader/", facts: factAssistant},         // sider.ai
	{text: "poggio-citations", facts: factAssistant},    // docs.poggio.io/api/robots
	{text: "bigsur.ai", facts: factAssistant},           // bigsur.ai
	// 5: a user has sent or posted the link.
	{text: "facebookexternalhit", facts: factPreview},
	{text: "facebot", facts: factPreview},
	{text: "twitterbot", facts: factPreview},
	{text: "slackbot", facts: factPreview},
	{text: "slack-imgproxy", facts: factPreview},
	{text: "linkedinbot", facts: factPreview},
	{text: "telegrambot", facts: factPreview},
	{text: "discordbot", facts: factPreview},
	{text: "skypeuripreview", facts: factPreview},
	{text: "bingpreview", facts: factPreview},
	{text: "snap url preview", facts: factPreview},
	{text: "redditbot", facts: factPreview},
	{text: "embedly", facts: factPreview},
	{text: "iframely", facts: factPreview},
	{text: "mastodon/", facts: factPreview},
	{text: "cardyb", facts: factPreview},
	{text: "vkshare", facts: factPreview},
	{text: "whatsapp", where: atStart, facts: factPreview},
	{text: "viber", where: atStart, facts: factPreview},
	{text: "tumblr/", where: atStart, facts: factPreview},
	{text: "pinterest/", where: atStart, facts: factPreview},
	{text: "link preview", facts: factPreview},     // Yahoo, Quora, Bitrix
	{text: "linkpreview", facts: factPreview},      // Buffer, Chatwork, Orlo
	{text: "urlpreview", facts: factPreview},       // business.snapchat.com/legal/snapchat-automated-crawler; Zulip
	{text: "unfurl", facts: factPreview},           // ClickUp, LMArena
	{text: "linkexpander", facts: factPreview},     // Yahoo
	{text: "microsoftpreview", facts: factPreview}, // aka.ms/MicrosoftPreview: Teams, Outlook
	{text: "blueskypreview", facts: factPreview},
	{text: "meta-externalhit", facts: factPreview},
	{text: "mattermost-bot", facts: factPreview},
	{text: "evernoterichlinkbot", facts: factPreview},
	{text: "keybasebot", facts: factPreview},   // book.keybase.io/docs/chat/link-previews
	{text: "summalybot", facts: factPreview},   // github.com/misskey-dev/summaly
	{text: "synapse (bot", facts: factPreview}, // github.com/matrix-org/synapse
	{text: "steamchaturllookup", facts: factPreview},
	{text: "forum onebox", facts: factPreview}, // Discourse
	{text: "lemmy/", where: atStart, facts: factPreview},
	{text: "notion/", where: atStart, facts: factPreview},
	// 6: a security product has found the link in a message.
	{text: "barracuda", facts: factScanner},
	{text: "proofpoint", facts: factScanner},
	{text: "mimecast", facts: factScanner},
	{text: "google-safety", facts: factScanner},
	{text: "virustotal", facts: factScanner},
	{text: "urlscan", facts: factScanner},
	{text: "netcraft", facts: factScanner},
	{text: "kaspersky lab", facts: factScanner},
	{text: "mcafee.com", facts: factScanner},
	{text: "cloudflare-radar-scanner", facts: factScanner},
	{text: "developers.cloudflare.com/security-center", facts: factScanner},
	{text: "projectshield-urlcheck", facts: factScanner},
	{text: "twinwavescanner", facts: factScanner},
	{text: "k7mlwcbot", facts: factScanner},
	{text: "safednsbot", facts: factScanner},
	{text: "aliyunsecbot", facts: factScanner},
	// 7: crawlers, whose names are compared here without regard to case.
	{text: "googlebot", facts: factCrawler},
	{text: "bingbot", facts: factCrawler},
	{text: "applebot", facts: factCrawler},
	{text: "bot", where: endsWord, facts: factCrawler},
	{text: "spider", facts: factCrawler},
	{text: "crawler", facts: factCrawler},
	{text: "://", facts: factCrawler},
	// 8: browsers that a program controls, and libraries.
	{text: "headlesschrome", facts: factAutomation},
	{text: "phantomjs", facts: factAutomation},
	{text: "curl/", facts: factAutomation},
	{text: "wget/", facts: factAutomation},
	{text: "python-requests", facts: factAutomation},
	{text: "go-http-client", facts: factAutomation},
	{text: "okhttp", facts: factAutomation},
	{text: "axios", facts: factAutomation},
	{text: "node-fetch", facts: factAutomation},
	{text: "java/", facts: factAutomation},
	{text: "siege/", facts: factAutomation},
	// 12, and the system.
	{text: "windows nt", facts: factWindowsNT, flags: hasWindows},
	{text: "windows", flags: hasWindows},
	{text: "macintosh", facts: factMacintosh, flags: hasMac},
	{text: "x11; linux", facts: factX11Linux, flags: hasLinux},
	{text: "linux", flags: hasLinux},
	{text: "x11; cros", flags: hasChromeOS},
	{text: "cros ", where: startsWord, flags: hasChromeOS},
	{text: "android", flags: hasAndroid},
	{text: "iphone", flags: hasIOS, facts: factMobile},
	{text: "ipod", flags: hasIOS, facts: factMobile},
	{text: "ipad", flags: hasIOS, facts: factIPad},
	{text: "mobile", facts: factMobile},
	// Browsers. Edge, Opera and Samsung Internet name Chrome too, and Chrome names Safari.
	{text: "chrome/", flags: hasChrome},
	{text: "chromium/", flags: hasChrome},
	{text: "crios/", flags: hasChrome},
	{text: "safari/", flags: hasSafari},
	{text: "firefox/", flags: hasFirefox},
	{text: "fxios/", flags: hasFirefox},
	{text: "focus/", where: startsWord, flags: hasFirefox},
	{text: "edg/", where: startsWord, flags: hasEdge},
	{text: "edge/", where: startsWord, flags: hasEdge},
	{text: "edga/", where: startsWord, flags: hasEdge},
	{text: "edgios/", where: startsWord, flags: hasEdge},
	{text: "opr/", where: startsWord, flags: hasOpera},
	{text: "opera", where: startsWord, flags: hasOpera},
	{text: "opios/", where: startsWord, flags: hasOpera},
	{text: "opt/", where: startsWord, flags: hasOpera},
	{text: "opx/", where: startsWord, flags: hasOpera},
	{text: "samsungbrowser/", flags: hasSamsung},
	// In-app browsers, as in shared/agent, which reads them on phones only.
	{text: "fban/", flags: hasFacebook},
	{text: "fbav/", flags: hasFacebook},
	{text: "fb_iab/", flags: hasFacebook},
	{text: "fban/messenger", flags: hasMessenger},
	{text: "fb_iab/messenger", flags: hasMessenger},
	{text: "fb_iab/orca", flags: hasMessenger},
	{text: "instagram ", flags: hasInstagram},
	{text: "barcelona ", flags: hasThreads},
	{text: "musical_ly", flags: hasTikTok},
	{text: "bytedancewebview", flags: hasTikTok},
	{text: "tiktok", flags: hasTikTok},
	{text: "snapchat", flags: hasSnapchat},
	{text: "linkedinapp", flags: hasLinkedIn},
	{text: "twitter for ", flags: hasX},
	{text: "twitterandroid", flags: hasX},
	{text: "[pinterest/", flags: hasPinterest},
	{text: "line/", where: startsWord, flags: hasLine},
	{text: "micromessenger/", flags: hasWeChat},
	{text: "gsa/", where: startsWord, flags: hasGoogleApp},
	{text: "googleapp/", flags: hasGoogleApp},
}

// browserNames start the User-Agents of browsers that do not start with Mozilla/ or Opera/, in lower case.
var browserNames = []string{
	"ucweb/", "ucbrowser", "nokia", "samsung-", "lg-", "mot-", "sonyericsson", "blackberry", "docomo/", "kddi-", "softbank/", "sec-",
	"links (", "lynx/", "w3m/", "elinks/", "netsurf/", "dillo/", "surf/", "jiophone", "opera",
}

func startsLikeBrowser(userAgent []byte) bool {
	if hasPrefixFold(userAgent, "mozilla/") || hasPrefixFold(userAgent, "opera/") {
		return true
	}
	return slices.ContainsFunc(browserNames, func(name string) bool { return hasPrefixFold(userAgent, name) })
}

func hasPrefixFold(value []byte, word string) bool {
	return len(value) >= len(word) && equalFold(value[:len(word)], word)
}

// wordAt returns the longest word that starts at this position of a User-Agent, nil if there is none. Words may overlap: "facebot" also
// ends in "bot".
func wordAt(userAgent []byte, at int) *word {
	first := lower[userAgent[at]]
	if at+1 >= len(userAgent) || secondLetters[first]>>(lower[userAgent[at+1]]%64)&1 == 0 {
		return nil
	}
	group := vocabulary[first]
	for i := range group {
		if w := &group[i]; w.isAt(userAgent, at) {
			return w
		}
	}
	return nil
}

func (w *word) isAt(userAgent []byte, at int) bool {
	end := at + len(w.text)
	if end > len(userAgent) || !equalFold(userAgent[at:end], w.text) {
		return false
	}
	switch w.where {
	case atStart:
		return at == 0
	case startsWord:
		return at == 0 || !isLetter(userAgent[at-1])
	case endsWord:
		if isCubot(userAgent, end) {
			return false
		}
		if end < len(userAgent) && lower[userAgent[end]] == 's' {
			end++
		}
		return end == len(userAgent) || !isLetter(userAgent[end])
	}
	return true
}

// isCubot reports whether the "bot" that ends at end is the end of the phone's name "cubot".
func isCubot(userAgent []byte, end int) bool {
	return end >= len("cubot") && equalFold(userAgent[end-len("cubot"):end], "cubot")
}

func isLetter(c byte) bool { return 'a' <= lower[c] && lower[c] <= 'z' }

// vocabulary has the words by first letter, longer words before shorter ones. secondLetters has for each first letter the second letters
// that occur, as bits modulo 64.
var vocabulary, secondLetters = func() (byFirst [256][]word, seconds [256]uint64) {
	for _, w := range slices.SortedStableFunc(slices.Values(words), func(a, b word) int { return len(b.text) - len(a.text) }) {
		byFirst[w.text[0]] = append(byFirst[w.text[0]], w)
		seconds[w.text[0]] |= 1 << (w.text[1] % 64)
	}
	return byFirst, seconds
}()
