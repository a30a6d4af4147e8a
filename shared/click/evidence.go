package click

import "bytes"

// Evidence is what the rules and dimensions need of a request in addition to its User-Agent, as bits. It is stored with the click.
type Evidence uint16

const (
	// EvidenceHead: the method is HEAD.
	EvidenceHead Evidence = 1 << 0
	// EvidencePrefetch: a purpose header says that the response may never be shown ([Purpose]).
	EvidencePrefetch Evidence = 1 << 1
	// EvidenceBotPage: the edge took the client for a bot. It read the whole User-Agent; only its first MaxAgent bytes are stored.
	EvidenceBotPage Evidence = 1 << 2
	// EvidenceLanguage: the request has Accept-Language.
	EvidenceLanguage Evidence = 1 << 3
	// EvidenceHTML: Accept contains text/html.
	EvidenceHTML Evidence = 1 << 4
	// EvidenceHeadless: Sec-CH-UA contains HeadlessChrome.
	EvidenceHeadless Evidence = 1 << 5
	// EvidenceNoAgent: User-Agent is missing or blank.
	EvidenceNoAgent Evidence = 1 << 6

	// The platform of Sec-CH-UA-Platform is in three bits.
	hintShift = 8
	hintMask  = 7
)

// The values of Sec-CH-UA-Platform (Chromium: components/embedder_support/user_agent_utils.cc).
const (
	hintNone     Evidence = 0
	hintAndroid  Evidence = 1
	hintIOS      Evidence = 2
	hintWindows  Evidence = 3
	hintMacOS    Evidence = 4
	hintLinux    Evidence = 5
	hintChromeOS Evidence = 6
	hintOther    Evidence = 7
)

func (e Evidence) hint() Evidence { return e >> hintShift & hintMask }

// PlatformHint returns the evidence of the header Sec-CH-UA-Platform, as sent.
func PlatformHint(value []byte) Evidence {
	h := hintOther
	switch string(value) {
	case "":
		return 0
	case `"Android"`:
		h = hintAndroid
	case `"iOS"`:
		h = hintIOS
	case `"Windows"`:
		h = hintWindows
	case `"macOS"`:
		h = hintMacOS
	case `"Linux"`:
		h = hintLinux
	case `"Chrome OS"`, `"Chromium OS"`:
		h = hintChromeOS
	}
	return h << hintShift
}

// Purpose returns the evidence of one purpose header. isPurpose says that the header is Purpose or X-Purpose, for which "preview" counts
// too; Sec-Purpose and X-Moz are the others.
func Purpose(value []byte, isPurpose bool) Evidence {
	if containsFold(value, "prefetch") || containsFold(value, "prerender") || isPurpose && equalFold(trim(value), "preview") {
		return EvidencePrefetch
	}
	return 0
}

// Accept returns the evidence of the header Accept.
func Accept(value []byte) Evidence {
	const html = "text/html"
	// Browsers that navigate send it first.
	if len(value) >= len(html) && string(value[:len(html)]) == html || containsFold(value, html) {
		return EvidenceHTML
	}
	return 0
}

// BrandHint returns the evidence of the header Sec-CH-UA.
func BrandHint(value []byte) Evidence {
	// Few brands have an s, and it is found with a few instructions per 32 bytes.
	if (bytes.IndexByte(value, 's') >= 0 || bytes.IndexByte(value, 'S') >= 0) && containsFold(value, "headlesschrome") {
		return EvidenceHeadless
	}
	return 0
}

// Classify returns the rule that decides the class of a click, the first that matches. The rule of the canary is not among them: control
// applies it to all clicks of the canary's organization. The edge's facts are never [FactListed].
func Classify(e Evidence, f Facts) Reason {
	switch {
	case e&EvidenceHead != 0:
		return HeadRequest
	case e&EvidencePrefetch != 0:
		return PrefetchHeader
	case f&factAssistant != 0:
		return AssistantName
	case f&factPreview != 0:
		return PreviewName
	case f&factScanner != 0:
		return ScannerName
	case f&factCrawler != 0 || e&EvidenceBotPage != 0:
		return Crawler
	case f&factAutomation != 0 || e&EvidenceHeadless != 0:
		return Automation
	case e&EvidenceNoAgent != 0:
		return NoAgent
	case f&factBrowser == 0:
		return NotABrowser
	case f&FactListed != 0:
		return Listed
	case e&(EvidenceLanguage|EvidenceHTML) == 0:
		return NoBrowserHeaders
	case e.hint() == hintLinux && f&(factWindowsNT|factMacintosh) != 0,
		e.hint() == hintWindows && f&(factMacintosh|factX11Linux) != 0:
		return HintsContradict
	}
	return Browser
}

// containsFold reports whether value contains word, which is in lower case. The comparison ignores the case of ASCII letters.
func containsFold(value []byte, word string) bool {
	for at := 0; at+len(word) <= len(value); at++ {
		if equalFold(value[at:at+len(word)], word) {
			return true
		}
	}
	return false
}

// equalFold reports whether value is word, which is in lower case.
func equalFold(value []byte, word string) bool {
	if len(value) != len(word) {
		return false
	}
	for i := range value {
		if lower[value[i]] != word[i] {
			return false
		}
	}
	return true
}

func trim(value []byte) []byte {
	for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	for len(value) > 0 && (value[len(value)-1] == ' ' || value[len(value)-1] == '\t') {
		value = value[:len(value)-1]
	}
	return value
}

// lower maps ASCII letters to lower case, and every other byte to itself.
var lower = func() (table [256]byte) {
	for c := range table {
		table[c] = byte(c)
		if 'A' <= c && c <= 'Z' {
			table[c] += 'a' - 'A'
		}
	}
	return table
}()
