package catalog

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Link is a short URL and its destination. Optional fields are nil when unset and marshal to null, so that the JSON form always has every
// field. Create and update respond with it; list and get respond with [LinkWithDomain].
type Link struct {
	ID             string          `json:"id"`
	OrganizationID string          `json:"organizationId"`
	DomainID       string          `json:"domainId"`
	ShortCode      string          `json:"shortCode"`
	URL            string          `json:"url"`
	ExternalID     *string         `json:"externalId"`
	Path           string          `json:"path"`
	Channel        *string         `json:"channel"`
	UTMSource      *string         `json:"utmSource"`
	UTMMedium      *string         `json:"utmMedium"`
	UTMCampaign    *string         `json:"utmCampaign"`
	UTMTerm        *string         `json:"utmTerm"`
	UTMContent     *string         `json:"utmContent"`
	FallbackURL    *string         `json:"fallbackUrl"`
	OG             *OpenGraph      `json:"og"`
	Title          *string         `json:"title"`
	Tags           []string        `json:"tags"`
	Expiry         *Time           `json:"expiry"`
	TemplateID     *string         `json:"templateId"`
	Params         json.RawMessage `json:"params"`
	IsActive       bool            `json:"isActive"`
	CreatedAt      Time            `json:"createdAt"`
	UpdatedAt      Time            `json:"updatedAt"`
	// Version counts the writes to the link. Responses contain it only as a part of the ETag.
	Version int64 `json:"-"`
}

// LinkWithDomain is a link in the responses of list and get.
type LinkWithDomain struct {
	Link
	Domain Domain `json:"domain"`
}

// ETag returns the strong entity tag (RFC 9110, 8.8.3) of the link as GET returns it, with its quotes. It changes with every write to the
// link, and with the host and the status of its domain. Links with different ids never have the same tag.
func (l LinkWithDomain) ETag() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s\n%s", l.ID, l.Version, l.Domain.Host, l.Domain.Status))
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`
}

// OpenGraph is the preview of the short URL. A link whose three fields are all unset has a nil OpenGraph.
type OpenGraph struct {
	Title       *string `json:"title"`
	Description *string `json:"description"`
	ImageURL    *string `json:"imageUrl"`
}

// PublicLink is a link in the responses of /data, /match and /sdk/session, which are public: no title, no tags, no organization.
type PublicLink struct {
	ID          string          `json:"id"`
	URL         string          `json:"url"`
	ShortCode   string          `json:"shortCode"`
	Path        string          `json:"path"`
	Params      json.RawMessage `json:"params"`
	Channel     *string         `json:"channel"`
	UTMSource   *string         `json:"utmSource"`
	UTMMedium   *string         `json:"utmMedium"`
	UTMCampaign *string         `json:"utmCampaign"`
	UTMTerm     *string         `json:"utmTerm"`
	UTMContent  *string         `json:"utmContent"`
	FallbackURL *string         `json:"fallbackUrl"`
	OG          *OpenGraph      `json:"og"`
	Expiry      *Time           `json:"expiry"`
}

// Public returns the public part of the link.
func (l Link) Public() PublicLink {
	return PublicLink{
		ID: l.ID, URL: l.URL, ShortCode: l.ShortCode, Path: l.Path, Params: l.Params, Channel: l.Channel,
		UTMSource: l.UTMSource, UTMMedium: l.UTMMedium, UTMCampaign: l.UTMCampaign, UTMTerm: l.UTMTerm, UTMContent: l.UTMContent,
		FallbackURL: l.FallbackURL, OG: l.OG, Expiry: l.Expiry,
	}
}

// ShortURL returns the short URL of a code: {base}/{orgKey}/{code} on the shared host, https://{host}/{code} on a custom
// domain. base is LINK_BASE_URL without a trailing slash; host is empty for the shared host.
func ShortURL(base, orgKey, host, code string) string {
	if host != "" {
		return "https://" + host + "/" + code
	}
	return base + "/" + orgKey + "/" + code
}

// Key returns the name under which edges know a link: {domain}/{code}, where domain is the organization's key on the shared
// host and otherwise the custom host, and the code is in lower case, because codes are compared without regard to case.
func Key(orgKey, host, code string) string {
	domain := host
	if domain == "" {
		domain = orgKey
	}
	return domain + "/" + strings.ToLower(code)
}

// Time is a time that marshals as RFC 3339 in UTC with milliseconds, the format of every time in the API.
type Time struct{ time.Time }

// TimeFormat is the layout of every time in an answer.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(TimeFormat) + `"`), nil
}
