package catalog

// The bounds of the API. Lengths of text are in characters (runes), of URLs in characters after percent-encoding, of params in bytes as
// sent.
const (
	MaxPath          = 2048
	MaxShortCode     = 64
	MaxUTM           = 255
	MaxURL           = 2048
	MaxOGTitle       = 300
	MaxOGDescription = 1000
	MaxTitle         = 255
	MaxTags          = 50
	MaxTag           = 64
	MaxTemplateID    = 128
	MaxExternalID    = 255
	MaxParamsBytes   = 8 << 10
	MaxParamsDepth   = 8
	MaxHost          = 253
	MaxCustomHost    = MaxHost - len(VerificationLabel) // of a custom domain: the name of its TXT record must fit into MaxHost
	MaxHostLabel     = 63
	MaxAppID         = 255
	MaxFingerprints  = 10
)

// The patterns of the API, as the OpenAPI document has them.
const (
	ShortCodePattern   = `^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`
	TeamIDPattern      = `^[A-Z0-9]{10}$`
	AppStoreIDPattern  = `^[0-9]{5,12}$`
	BundleIDPattern    = `^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`
	PackageNamePattern = `^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+$`
	FingerprintPattern = `^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){31}$`
	AppSchemePattern   = `^[a-z][a-z0-9+.-]{1,31}$`
)

// ReservedAppSchemes are URL schemes that an app cannot have, because a browser or the operating system would run code, show files or open
// another app. control rejects them, and the edge's pages ignore a stored one. The slice must not be changed.
var ReservedAppSchemes = []string{
	"about", "blob", "chrome", "content", "data", "file", "filesystem", "ftp", "http", "https", "intent", "itms", "itms-apps",
	"itms-appss", "itms-services", "jar", "javascript", "mailto", "market", "resource", "sms", "tel", "vbscript", "view-source", "ws",
	"wss",
}

// Channels are the known channels, in the order of the OpenAPI document. The slice must not be changed.
var Channels = []string{
	"email", "sms", "push", "social", "facebook", "instagram", "twitter", "x", "tiktok", "youtube", "linkedin", "whatsapp",
	"telegram", "snapchat", "pinterest", "reddit", "google", "apple", "bing", "search", "paid_search", "paid_social", "display",
	"video", "podcast", "affiliate", "influencer", "referral", "partner", "web", "app", "in_app", "qr", "print", "offline",
	"organic", "direct", "other",
}
