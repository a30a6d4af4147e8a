package catalog

// The bounds of decisions.md 1, 2 and 5. Lengths of text are in characters (runes), of URLs in characters after
// percent-encoding, of params in bytes as sent.
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
	MaxParamsBytes   = 8 << 10
	MaxParamsDepth   = 8
	MaxHost          = 253
	MaxCustomHost    = MaxHost - len(VerificationLabel) // of a custom domain, whose proof is at a name of its own
	MaxHostLabel     = 63
	MaxAppID         = 255
	MaxFingerprints  = 10
)

// The patterns of decisions.md 1 and 5, as they stand in the OpenAPI document.
const (
	ShortCodePattern   = `^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`
	TeamIDPattern      = `^[A-Z0-9]{10}$`
	AppStoreIDPattern  = `^[0-9]{5,12}$`
	BundleIDPattern    = `^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`
	PackageNamePattern = `^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+$`
	FingerprintPattern = `^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){31}$`
	AppSchemePattern   = `^[a-z][a-z0-9+.-]{1,31}$`
)

// Channels are the known channels, in the order of decisions.md 1. It must not be changed.
var Channels = []string{
	"email", "sms", "push", "social", "facebook", "instagram", "twitter", "x", "tiktok", "youtube", "linkedin", "whatsapp",
	"telegram", "snapchat", "pinterest", "reddit", "google", "apple", "bing", "search", "paid_search", "paid_social", "display",
	"video", "podcast", "affiliate", "influencer", "referral", "partner", "web", "app", "in_app", "qr", "print", "offline",
	"organic", "direct", "other",
}
