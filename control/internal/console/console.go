// Package console is the page of an organization's administrators. The page calls the portal routes of the API with a session token, as any
// other client does.
package console

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"path"
	"regexp"

	"deeplink/shared/catalog"
)

//go:embed files
var files embed.FS

// indexPage is the template of the page at /console.
const indexPage = "index.html"

// policy lets the page load files from, and send requests to, its own host only, and one more when %s names it. Browsers refuse scripts that
// make HTML from text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'%s; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Settings are what the page knows before a user has signed in. None of it is secret.
type Settings struct {
	// TokenURL is where the button for a session token sends its request, and Organization the external id that it proposes. Both are for
	// development only; without TokenURL there is no button.
	TokenURL, Organization string
	// RoleClaim is the claim of session tokens that has the role.
	RoleClaim string
}

// tokenAddress matches URLs without characters that have a meaning in a Content-Security-Policy.
var tokenAddress = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`)

// errTokenURL names the flag, because the program shows the error as it is.
var errTokenURL = errors.New("--console-dev-token-url ($CONSOLE_DEV_TOKEN_URL) must be an https or http URL without user, query and fragment")

// TokenOrigin returns the origin of TokenURL, empty when there is none.
func (s Settings) TokenOrigin() (string, error) {
	if s.TokenURL == "" {
		return "", nil
	}
	address, err := url.Parse(s.TokenURL)
	if err != nil || address.Host == "" || !tokenAddress.MatchString(s.TokenURL) {
		return "", errTokenURL
	}
	return address.Scheme + "://" + address.Host, nil
}

// facts are the values in the page. The page reads them as JSON.
type facts struct {
	TokenURL     string            `json:"tokenUrl"`
	Organization string            `json:"organization"`
	RoleClaim    string            `json:"roleClaim"`
	Channels     []string          `json:"channels"`
	Plans        []offer           `json:"plans"`
	Patterns     map[string]string `json:"patterns"`
	// ReservedSchemes are schemes that control refuses for an app.
	ReservedSchemes []string `json:"reservedSchemes"`
}

// features are those that a plan may include.
type features struct {
	APIAccess     bool `json:"api_access"`
	CustomDomains bool `json:"custom_domains"`
}

// offer is a plan that users can select. Links is nil when it has no quota.
type offer struct {
	Plan     catalog.Plan `json:"plan"`
	Links    *int64       `json:"links"`
	Paid     bool         `json:"paid"`
	Features features     `json:"features"`
}

func offers() []offer {
	plans := []catalog.Plan{catalog.Free, catalog.Starter, catalog.Growth, catalog.Scale, catalog.Enterprise}
	all := make([]offer, len(plans))
	for i, plan := range plans {
		terms := plan.Terms()
		all[i] = offer{Plan: plan, Paid: terms.Paid, Features: features{terms.APIAccess, terms.CustomDomains}}
		if terms.Links != catalog.Unlimited {
			all[i].Links = &terms.Links
		}
	}
	return all
}

// File is a static file of the page.
type File struct {
	Path, MediaType string
	Content         []byte
	// Policy is the Content-Security-Policy to serve it with.
	Policy string
}

// Files returns the page, at /console, and everything that it loads.
func Files(s Settings) ([]File, error) {
	origin, err := s.TokenOrigin()
	if err != nil {
		return nil, err
	}
	if origin != "" {
		origin = " " + origin
	}
	page, err := template.ParseFS(files, "files/"+indexPage)
	if err != nil {
		return nil, err
	}
	var filled bytes.Buffer
	if err := page.Execute(&filled, facts{
		TokenURL: s.TokenURL, Organization: s.Organization, RoleClaim: s.RoleClaim, Channels: catalog.Channels, Plans: offers(),
		ReservedSchemes: catalog.ReservedAppSchemes,
		Patterns: map[string]string{
			"shortCode": catalog.ShortCodePattern, "teamId": catalog.TeamIDPattern, "appStoreId": catalog.AppStoreIDPattern,
			"bundleId": catalog.BundleIDPattern, "packageName": catalog.PackageNamePattern, "fingerprint": catalog.FingerprintPattern,
			"scheme": catalog.AppSchemePattern,
		},
	}); err != nil {
		return nil, err
	}
	policy := fmt.Sprintf(policy, origin)
	all := []File{{"/console", "text/html; charset=utf-8", filled.Bytes(), policy}}
	entries, err := files.ReadDir("files")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Name() == indexPage {
			continue
		}
		content, err := files.ReadFile("files/" + entry.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, File{"/console/" + entry.Name(), mediaTypes[path.Ext(entry.Name())], content, policy})
	}
	return all, nil
}

// mediaTypes are the types of the files. Those of package mime depend on the machine.
var mediaTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}
