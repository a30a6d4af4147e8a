// Package console is the page of an organization's administrators. The page calls the portal routes of the API with a session token, as any
// other client does.
package console

import (
	"bytes"
	"embed"
	"html/template"
	"path"

	"deeplink/shared/catalog"
)

//go:embed files
var files embed.FS

// policy lets the page load files from, and send requests to, its own origin only. Browsers refuse scripts that make HTML from text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Settings are what the page knows before a person has signed in. None of it is secret.
type Settings struct {
	// Provider: people can sign in with an identity provider. Otherwise only sign-in links let them in.
	Provider bool
	// Missing are the settings without which the console has no sign-in.
	Missing []string
}

// facts are the values in the page. The page reads them as JSON.
type facts struct {
	Provider bool              `json:"provider"`
	Missing  []string          `json:"missing"`
	Channels []string          `json:"channels"`
	Plans    []offer           `json:"plans"`
	Patterns map[string]string `json:"patterns"`
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
	// Volatile: browsers must not keep it.
	Volatile bool
}

// pages are the HTML files with their paths. The others lie below /console/.
var pages = []struct {
	path, file string
	volatile   bool
}{
	{"/console", "index.html", false}, {"/console/link", "link.html", true}, {"/console/done", "done.html", true},
}

// Files returns the page, at /console, and everything that belongs to it.
func Files(s Settings) ([]File, error) {
	templates, err := template.ParseFS(files, "files/*.html")
	if err != nil {
		return nil, err
	}
	known := facts{
		Provider: s.Provider, Missing: append([]string{}, s.Missing...), Channels: catalog.Channels, Plans: offers(),
		ReservedSchemes: catalog.ReservedAppSchemes,
		Patterns: map[string]string{
			"shortCode": catalog.ShortCodePattern, "teamId": catalog.TeamIDPattern, "appStoreId": catalog.AppStoreIDPattern,
			"bundleId": catalog.BundleIDPattern, "packageName": catalog.PackageNamePattern, "fingerprint": catalog.FingerprintPattern,
			"scheme": catalog.AppSchemePattern,
		},
	}
	var all []File
	for _, page := range pages {
		var filled bytes.Buffer
		if err := templates.ExecuteTemplate(&filled, page.file, known); err != nil {
			return nil, err
		}
		all = append(all, File{page.path, mediaTypes[".html"], filled.Bytes(), policy, page.volatile})
	}
	entries, err := files.ReadDir("files")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		kind := path.Ext(entry.Name())
		if kind == ".html" {
			continue
		}
		content, err := files.ReadFile("files/" + entry.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, File{"/console/" + entry.Name(), mediaTypes[kind], content, policy, false})
	}
	return all, nil
}

// mediaTypes are the types of the files. Those of package mime depend on the machine.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}
