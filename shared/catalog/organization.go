package catalog

// Organization is a tenant.
type Organization struct {
	ID         string  `json:"id"`
	OrgKey     string  `json:"orgKey"`
	Name       string  `json:"name"`
	ExternalID *string `json:"externalId"`
	Plan       *Plan   `json:"plan"`
	Suspended  bool    `json:"suspended"`
	CreatedAt  Time    `json:"createdAt"`
}

// Domain is where links live: the shared host, which is every organization's default domain, or a custom one.
type Domain struct {
	ID        string       `json:"id"`
	Host      string       `json:"host"`
	IsDefault bool         `json:"isDefault"`
	IsCustom  bool         `json:"isCustom"`
	Status    DomainStatus `json:"status"`
	CreatedAt Time         `json:"createdAt"`
}

// DomainStatus tells whether a domain resolves.
type DomainStatus string

// The states of a domain. The shared host is always verified.
const (
	DomainPending  DomainStatus = "pending"
	DomainVerified DomainStatus = "verified"
)

// AppConfig tells how an organization's apps are opened. It counts as registered when at least one of IOS, Android and
// FallbackURL is set.
type AppConfig struct {
	IOS            *IOSApp     `json:"ios"`
	Android        *AndroidApp `json:"android"`
	FallbackURL    *string     `json:"fallbackUrl"`
	HTMLErrorPages bool        `json:"htmlErrorPages"`
}

// IOSApp names an app for Apple's platforms.
type IOSApp struct {
	BundleID   *string `json:"bundleId"`
	TeamID     *string `json:"teamId"`
	AppStoreID *string `json:"appStoreId"`
	Scheme     *string `json:"scheme"`
}

// AndroidApp names an app for Android.
type AndroidApp struct {
	PackageName            *string  `json:"packageName"`
	SHA256CertFingerprints []string `json:"sha256CertFingerprints"`
	Scheme                 *string  `json:"scheme"`
}

// Registered reports whether the config is complete enough for the first link. Without it a create fails with 428 APP_CONFIG_REQUIRED.
func (c AppConfig) Registered() bool {
	return c.IOS != nil || c.Android != nil || c.FallbackURL != nil
}
