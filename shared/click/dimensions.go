package click

import "deeplink/shared/agent"

// The names of the dimensions of clicks.
const (
	DimensionCountry  = "country"
	DimensionOS       = "os"
	DimensionBrowser  = "browser"
	DimensionDevice   = "device"
	DimensionLanguage = "language"
	DimensionReferrer = "referrer"
)

// Values of a dimension that are not values of clicks.
const (
	// OtherValue stands for the values beyond the first MaxValues of a day.
	OtherValue = "(other)"
	// Unrecorded stands for clicks that were only counted.
	Unrecorded = "(unrecorded)"
)

// MaxValues is the number of distinct values that are kept per organization, dimension and day.
const MaxValues = 10_000

// OS is the operating system of a client.
type OS uint8

const (
	OSOther  OS = 0
	IOS      OS = 1
	Android  OS = 2
	Windows  OS = 3
	MacOS    OS = 4
	Linux    OS = 5
	ChromeOS OS = 6
)

var systems = [...]string{OSOther: "other", IOS: "ios", Android: "android", Windows: "windows", MacOS: "macos", Linux: "linux", ChromeOS: "chromeos"}

// String returns the name in the database and the API.
func (o OS) String() string { return name(systems[:], int(o)) }

// browsers are the names of browsers. Their indexes are in Facts.
var browsers = [...]string{"other", "chrome", "safari", "firefox", "edge", "opera", "samsung",
	"facebook", "messenger", "instagram", "threads", "tiktok", "snapchat", "linkedin", "x", "pinterest", "line", "wechat", "google-app", "in-app"}

const (
	browserOther = iota
	browserChrome
	browserSafari
	browserFirefox
	browserEdge
	browserOpera
	browserSamsung
	browserFacebook
	browserMessenger
	browserInstagram
	browserThreads
	browserTikTok
	browserSnapchat
	browserLinkedIn
	browserX
	browserPinterest
	browserLine
	browserWeChat
	browserGoogleApp
	browserInApp
)

// Device is the kind of a client's device: "mobile", "tablet", "desktop" or "other".
type Device string

const (
	Mobile      Device = "mobile"
	Tablet      Device = "tablet"
	Desktop     Device = "desktop"
	DeviceOther Device = "other"
)

// SystemOf returns the operating system of a click. The platform hint decides where the agent is that of another system: a phone that
// requests desktop sites.
func SystemOf(e Evidence, f Facts) OS {
	switch os := OS(f >> osShift & osMask); {
	case e.hint() == hintIOS, f&factDesktopMac != 0:
		return IOS
	case e.hint() == hintAndroid:
		return Android
	case e.hint() == hintChromeOS:
		return ChromeOS
	case os != OSOther:
		return os
	}
	switch e.hint() {
	case hintWindows:
		return Windows
	case hintMacOS:
		return MacOS
	case hintLinux:
		return Linux
	}
	return OSOther
}

// BrowserOf returns the name of the browser of a click.
func BrowserOf(f Facts) string { return name(browsers[:], int(f>>browserShift&browserMask)) }

// DeviceOf returns the device of a click.
func DeviceOf(e Evidence, f Facts) Device {
	switch SystemOf(e, f) {
	case IOS:
		// Only an iPad claims to be a Mac by default; an iPhone that requests desktop sites cannot be told from it.
		if f&(factIPad|factDesktopMac) != 0 {
			return Tablet
		}
		return Mobile
	case Android:
		// Chrome on a tablet does not say "Mobile" (developer.chrome.com/docs/privacy-security/user-agent).
		if f&factMobile != 0 {
			return Mobile
		}
		return Tablet
	case Windows, MacOS, Linux, ChromeOS:
		return Desktop
	}
	return DeviceOther
}

// osOf returns the system that a User-Agent names. Precedence: a Windows Phone claims to be Android and iPhone, Android names Linux.
func osOf(seen wordFlags) OS {
	switch {
	case seen&hasWindows != 0:
		return Windows
	case seen&hasIOS != 0:
		return IOS
	case seen&hasAndroid != 0:
		return Android
	case seen&hasChromeOS != 0:
		return ChromeOS
	case seen&hasMac != 0:
		return MacOS
	case seen&hasLinux != 0:
		return Linux
	}
	return OSOther
}

// inApp are the browsers inside apps, in the order of precedence: Messenger also names Facebook.
var inApp = [...]struct {
	flag    wordFlags
	browser uint8
}{
	{hasMessenger, browserMessenger}, {hasFacebook, browserFacebook}, {hasThreads, browserThreads}, {hasInstagram, browserInstagram},
	{hasTikTok, browserTikTok}, {hasSnapchat, browserSnapchat}, {hasLinkedIn, browserLinkedIn}, {hasX, browserX},
	{hasPinterest, browserPinterest}, {hasLine, browserLine}, {hasWeChat, browserWeChat}, {hasGoogleApp, browserGoogleApp},
	{hasSamsung, browserSamsung}, {hasEdge, browserEdge}, {hasOpera, browserOpera}, {hasFirefox, browserFirefox},
}

// onPhone are the browsers that agent.Parse recognizes on phones.
var onPhone = map[agent.Browser]uint8{
	agent.Facebook: browserFacebook, agent.Messenger: browserMessenger, agent.Instagram: browserInstagram, agent.Threads: browserThreads,
	agent.TikTok: browserTikTok, agent.Snapchat: browserSnapchat, agent.LinkedIn: browserLinkedIn, agent.X: browserX,
	agent.Pinterest: browserPinterest, agent.Line: browserLine, agent.WeChat: browserWeChat, agent.GoogleApp: browserGoogleApp,
	agent.OtherApp: browserInApp, agent.Firefox: browserFirefox,
}

func browserOf(seen wordFlags, parsed agent.Browser) uint8 {
	if browser, found := onPhone[parsed]; found && browser != browserInApp {
		return browser
	}
	for _, b := range inApp {
		if seen&b.flag != 0 {
			return b.browser
		}
	}
	switch {
	case parsed == agent.OtherApp:
		return browserInApp
	case seen&hasChrome != 0:
		return browserChrome
	case seen&hasSafari != 0 && seen&(hasMac|hasIOS|hasWindows) != 0: // Android's first browser and those of Linux name Safari, too
		return browserSafari
	}
	return browserOther
}

// Language returns the primary subtag of the first range of Accept-Language, in lower case, and its length; 0 if it is not 2 or 3 letters.
func Language(accept []byte) (subtag [3]byte, length int) {
	accept = trim(accept)
	for length < len(accept) && isLetter(accept[length]) {
		if length == len(subtag) {
			return [3]byte{}, 0
		}
		subtag[length] = lower[accept[length]]
		length++
	}
	if length < 2 || length < len(accept) && accept[length] != '-' && accept[length] != ',' && accept[length] != ';' && accept[length] != ' ' {
		return [3]byte{}, 0
	}
	return subtag, length
}

// AppendReferrer appends the host of a Referer, in lower case and without port, to dst. It appends nothing if the scheme is not http,
// https or android-app, or if the host is not a name or address of at most MaxReferrer bytes.
func AppendReferrer(dst, referer []byte) []byte {
	switch {
	case hasPrefixFold(referer, "https://"):
		referer = referer[len("https://"):]
	case hasPrefixFold(referer, "http://"):
		referer = referer[len("http://"):]
	case hasPrefixFold(referer, "android-app://"):
		referer = referer[len("android-app://"):]
	default:
		return dst
	}
	for i, c := range referer {
		if c == '/' || c == '?' || c == '#' || c == '\\' {
			referer = referer[:i]
			break
		}
	}
	for i := len(referer) - 1; i >= 0; i-- {
		if referer[i] == '@' { // what comes before it is user information
			referer = referer[i+1:]
			break
		}
	}
	literal := len(referer) > 0 && referer[0] == '['
	start := len(dst)
	for i := range referer {
		switch c := lower[referer[i]]; {
		case c == ':' && !literal:
			return bounded(dst, start)
		case hostByte(c), literal && (c == '[' || c == ']' || c == ':'):
			if len(dst)-start == MaxReferrer {
				return dst[:start]
			}
			dst = append(dst, c)
			if c == ']' {
				return bounded(dst, start)
			}
		default:
			return dst[:start]
		}
	}
	return bounded(dst, start)
}

// bounded drops a host that has no letter or digit.
func bounded(dst []byte, start int) []byte {
	for _, c := range dst[start:] {
		if c != '.' && c != '-' && c != '_' && c != '[' && c != ']' && c != ':' {
			return dst
		}
	}
	return dst[:start]
}

func hostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_'
}

// Country returns an ISO 3166-1 alpha-2 code in upper case; false for XX, ZZ and what is not two letters.
func Country(value []byte) (code [2]byte, ok bool) {
	if len(value) != 2 || !isLetter(value[0]) || !isLetter(value[1]) {
		return code, false
	}
	code = [2]byte{lower[value[0]] - 'a' + 'A', lower[value[1]] - 'a' + 'A'}
	if code == [2]byte{'X', 'X'} || code == [2]byte{'Z', 'Z'} {
		return [2]byte{}, false
	}
	return code, true
}
