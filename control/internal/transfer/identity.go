package transfer

import (
	"crypto/sha256"
	"encoding/json"
	"strings"

	"deeplink/shared/catalog"
)

const (
	derivedAlphabet = "23456789abcdefghjkmnpqrstuvwxyz"
	derivedLength   = 12 // of 31 each: among a million links, the probability of a collision is one in a million
)

// deriveCode returns the short code of an imported row that has none. It depends only on the organization, the host that the row
// names and the fields of the row, so importing the row again finds the link that the first import created.
func deriveCode(organizationID, host string, l catalog.Link) string {
	identity := identityV1(organizationID, host, l)
	if l.ExternalID != nil {
		identity = identityV2(identity, *l.ExternalID)
	}
	sum := sha256.Sum256(identity)
	code := make([]byte, derivedLength)
	for i := range code {
		code[i] = derivedAlphabet[int(sum[i])%len(derivedAlphabet)]
	}
	return string(code)
}

// identityV1 returns version 1 of the text that identifies an imported row without a short code: the organization, the host, and the JSON
// of rowV1. Links in databases have codes derived from this text, so the text of a row must never change: every import of the row would
// create a second link.
//
// A field that is later added to Link must not be added here. A row that sets such a field needs a version 2: a text that begins with
// its version, followed by this text and the new fields. Rows that set none of the new fields keep version 1.
func identityV1(organizationID, host string, l catalog.Link) []byte {
	row := rowV1{
		ID: l.ID, OrganizationID: l.OrganizationID, DomainID: l.DomainID, ShortCode: l.ShortCode, URL: l.URL, Path: l.Path,
		Channel: l.Channel, UTMSource: l.UTMSource, UTMMedium: l.UTMMedium, UTMCampaign: l.UTMCampaign, UTMTerm: l.UTMTerm,
		UTMContent: l.UTMContent, FallbackURL: l.FallbackURL, Title: l.Title, Tags: l.Tags, TemplateID: l.TemplateID, Params: l.Params,
		IsActive: l.IsActive, CreatedAt: timeV1(l.CreatedAt), UpdatedAt: timeV1(l.UpdatedAt),
	}
	if l.OG != nil {
		row.OG = &openGraphV1{l.OG.Title, l.OG.Description, l.OG.ImageURL}
	}
	if l.Expiry != nil {
		row.Expiry = new(timeV1(*l.Expiry))
	}
	text, err := json.Marshal(row)
	if err != nil {
		panic(err) // the row's only JSON of its own is params, which was read from JSON
	}
	return append([]byte(organizationID+"\n"+strings.ToLower(host)+"\n"), text...)
}

// identityV2 returns version 2, of a row with an external id. It must never change, either.
func identityV2(version1 []byte, externalID string) []byte {
	return append([]byte("2\n"+externalID+"\n"), version1...)
}

// rowV1 is a link as it was when imports began, with its output-only fields, which are empty in a row. It is apart from [catalog.Link], and
// never changes. What is unset is null.
type rowV1 struct {
	ID             string          `json:"id"`
	OrganizationID string          `json:"organizationId"`
	DomainID       string          `json:"domainId"`
	ShortCode      string          `json:"shortCode"`
	URL            string          `json:"url"`
	Path           string          `json:"path"`
	Channel        *string         `json:"channel"`
	UTMSource      *string         `json:"utmSource"`
	UTMMedium      *string         `json:"utmMedium"`
	UTMCampaign    *string         `json:"utmCampaign"`
	UTMTerm        *string         `json:"utmTerm"`
	UTMContent     *string         `json:"utmContent"`
	FallbackURL    *string         `json:"fallbackUrl"`
	OG             *openGraphV1    `json:"og"`
	Title          *string         `json:"title"`
	Tags           []string        `json:"tags"`
	Expiry         *string         `json:"expiry"`
	TemplateID     *string         `json:"templateId"`
	Params         json.RawMessage `json:"params"`
	IsActive       bool            `json:"isActive"`
	CreatedAt      string          `json:"createdAt"`
	UpdatedAt      string          `json:"updatedAt"`
}

type openGraphV1 struct {
	Title       *string `json:"title"`
	Description *string `json:"description"`
	ImageURL    *string `json:"imageUrl"`
}

func timeV1(t catalog.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
