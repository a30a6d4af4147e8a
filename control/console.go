package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"regexp"

	"github.com/danielgtaylor/huma/v2"

	"deeplink/shared/catalog"
)

//go:embed console
var consoleFiles embed.FS

// consolePage is the one of the files that is filled in, and served at /console itself.
const consolePage = "index.html"

// consolePolicy lets the console load, and send requests to, this host only, and one more when %s names it. No script can make HTML
// of text: the browser refuses it.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'%s; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// consoleSettings are for development only: in production tokens come from the identity provider, and people paste them.
type consoleSettings struct {
	TokenURL     string `name:"console-dev-token-url" env:"CONSOLE_DEV_TOKEN_URL" help:"For development only: where the console has a button to get a session token from. Without it there is no button."`
	Organization string `name:"console-dev-organization" env:"CONSOLE_DEV_ORGANIZATION" help:"For development only: the external id of the organization that the console proposes beside that button."`
}

// tokenAddress has no character that would mean something in a policy.
var tokenAddress = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`)

// origin returns that of TokenURL, or nothing when there is none.
func (c consoleSettings) origin() (string, error) {
	if c.TokenURL == "" {
		return "", nil
	}
	address, err := url.Parse(c.TokenURL)
	if err != nil || address.Host == "" || !tokenAddress.MatchString(c.TokenURL) {
		return "", errors.New("--console-dev-token-url ($CONSOLE_DEV_TOKEN_URL) must be an https or http URL without user, query and fragment")
	}
	return address.Scheme + "://" + address.Host, nil
}

// consoleFacts are what the page knows before anyone has signed in. None of it is secret.
type consoleFacts struct {
	TokenURL     string            `json:"tokenUrl"`
	Organization string            `json:"organization"`
	RoleClaim    string            `json:"roleClaim"`
	Channels     []string          `json:"channels"`
	Plans        []offer           `json:"plans"`
	Patterns     map[string]string `json:"patterns"`
}

// offer is a plan to choose. Links is nil when there is no quota.
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

// consoleRoutes answer with the console of an organization's administrators: a page that asks /portal with a session token, as any
// other client does.
func consoleRoutes(c consoleSettings, roleClaim string) ([]route, error) {
	origin, err := c.origin()
	if err != nil {
		return nil, err
	}
	if origin != "" {
		origin = " " + origin
	}
	page, err := template.ParseFS(consoleFiles, "console/"+consolePage)
	if err != nil {
		return nil, err
	}
	var filled bytes.Buffer
	if err := page.Execute(&filled, consoleFacts{
		TokenURL: c.TokenURL, Organization: c.Organization, RoleClaim: roleClaim, Channels: catalog.Channels, Plans: offers(),
		Patterns: map[string]string{
			"shortCode": catalog.ShortCodePattern, "teamId": catalog.TeamIDPattern, "appStoreId": catalog.AppStoreIDPattern,
			"bundleId": catalog.BundleIDPattern, "packageName": catalog.PackageNamePattern, "fingerprint": catalog.FingerprintPattern,
			"scheme": catalog.AppSchemePattern,
		},
	}); err != nil {
		return nil, err
	}
	policy := fmt.Sprintf(consolePolicy, origin)
	served := func(path, mediaType string, content []byte) route {
		return route{huma.Operation{Method: http.MethodGet, Path: path}, newConsoleFile(policy, mediaType, content).answer}
	}
	routes := []route{served("/console", "text/html; charset=utf-8", filled.Bytes())}
	files, err := consoleFiles.ReadDir("console")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if file.Name() == consolePage {
			continue
		}
		content, err := consoleFiles.ReadFile("console/" + file.Name())
		if err != nil {
			return nil, err
		}
		routes = append(routes, served("/console/"+file.Name(), consoleMedia[path.Ext(file.Name())], content))
	}
	return routes, nil
}

// consoleMedia are the types of the files. The system's table could say something else.
var consoleMedia = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// consoleFile is a part of the console. Browsers keep it and ask each time whether it is still the one: modules of two versions never meet.
type consoleFile struct {
	file
	policy, tag string
}

func newConsoleFile(policy, mediaType string, content []byte) *consoleFile {
	sum := sha256.Sum256(content)
	return &consoleFile{file{mediaType, content}, policy, `"` + hex.EncodeToString(sum[:16]) + `"`}
}

func (f *consoleFile) answer(x *exchange, r *http.Request) error {
	header := x.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Security-Policy", f.policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("ETag", f.tag)
	header.Set("Referrer-Policy", "no-referrer")
	if matches(r.Header.Values("If-None-Match"), f.tag) {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	x.send(http.StatusOK, f.mediaType, f.content)
	return nil
}
