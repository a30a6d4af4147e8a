// Package wellknown renders the files under /.well-known/ with which iOS and Android learn which apps may open the links of a host. It
// promises that a file lists every app of the host that fits within the size that the platform reads, the oldest organizations first.
package wellknown

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strings"

	"deeplink/edge/internal/link"
	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/replica"
	"deeplink/shared/feed"
)

// The paths of the files. A short code never has this form, so a domain and such a path form a key of the replica. Apple's current
// documents name no other path; the file at the root of a host is obsolete.
const (
	ApplePath  = "/.well-known/apple-app-site-association"
	GooglePath = "/.well-known/assetlinks.json"
)

// File is an association file.
//
// All organizations on the shared host are in one file, the oldest first. An organization for which the file has no room needs a custom
// domain.
type File struct {
	Path     string
	platform origin.Platform
	maxBytes int // how many bytes the platform reads
	render   func([]origin.App) ([]byte, error)
}

// Files are the association files.
var Files = [...]File{
	// 128 KB: Apple, App Search Programming Guide, revision of 2016-04-01. It does not say whether a KB has 1,000 or 1,024 bytes.
	{ApplePath, origin.IOS, 128_000, renderApple},
	// 1 MiB: Android, StatementService, HTTP_CONTENT_SIZE_LIMIT_IN_BYTES.
	{GooglePath, origin.Android, 1 << 20, renderGoogle},
}

// Index returns the index in [Files] of the file that a code names, or -1 if the code is a short code. The code is the part of a key
// after the domain: the path without its first slash.
func Index(code string) int {
	for i := range Files {
		if Files[i].Path[1:] == code {
			return i
		}
	}
	return -1
}

// IsFile reports whether the code of a key names an association file.
func IsFile(code string) bool { return Index(code) >= 0 }

// Rendered is a file as the replica keeps it: the number of organizations that did not fit (uint32), and the body.
type Rendered []byte

// LeftOut is the number of organizations for which the file has no room.
func (r Rendered) LeftOut() int { return int(binary.LittleEndian.Uint32(r)) }

// Body is the body of the response.
func (r Rendered) Body() []byte { return r[4:] }

// Load reads the apps of a domain and renders the file. The value of the answer is a [Rendered], or nil if the domain is unknown.
func (f *File) Load(ctx context.Context, from *origin.Origin, domain string) (replica.Result, error) {
	apps, err := from.Apps(ctx, f.platform, domain)
	if err != nil || domain != feed.SharedDomain && apps.OrgKey == "" {
		return replica.Result{}, err
	}
	body, fitting, err := f.Render(apps.List)
	if err != nil {
		return replica.Result{}, fmt.Errorf("render %s of %s: %w", f.Path, domain, err)
	}
	value := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(apps.Total-fitting))
	return replica.Result{OrgKey: apps.OrgKey, Value: append(value, body...)}, nil
}

// Render renders the file for as many of the apps as fit, from the start of the list, and returns how many fit.
func (f *File) Render(apps []origin.App) (body []byte, fitting int, err error) {
	if body, err = f.render(apps); err != nil || len(body) <= f.maxBytes {
		return body, len(apps), err
	}
	fitting = sort.Search(len(apps), func(i int) bool {
		body, err := f.render(apps[:i+1])
		return err != nil || len(body) > f.maxBytes
	})
	body, err = f.render(apps[:fitting])
	return body, fitting, err
}

// component is a pattern of paths. On both platforms the first match decides, and the app does not open a path without a match.
type component struct {
	Path    string `json:"/"`
	Exclude bool   `json:"exclude,omitempty"`
}

// appendComponents appends the patterns of an app's links. /data is for programs, so the app must not open it.
func appendComponents(components []component, app *origin.App) []component {
	prefix := ""
	if app.OrgKey != "" {
		prefix = "/" + app.OrgKey
	}
	return append(components, component{prefix + "/*/data", true}, component{prefix + "/*", false})
}

type appleApp struct {
	AppIDs     []string    `json:"appIDs"`
	Components []component `json:"components"`
}

type appleFile struct {
	AppLinks struct {
		Defaults struct {
			CaseSensitive bool `json:"caseSensitive"`
		} `json:"defaults"`
		Details []appleApp `json:"details"`
	} `json:"applinks"`
}

// renderApple returns an apple-app-site-association file (Apple, applinks). Patterns ignore case, as organization keys do. iOS 13 does
// not support that and matches only short URLs in their original case. iOS 12 and earlier expected paths instead of components, which
// Apple no longer documents; there, a link opens its page. An app that belongs to several organizations is listed once, because the
// effect of listing it twice is not documented.
func renderApple(apps []origin.App) ([]byte, error) {
	var file appleFile
	file.AppLinks.Details = []appleApp{}
	indexes := make(map[string]int, len(apps))
	for i := range apps {
		index, listed := indexes[apps[i].ID]
		if !listed {
			index = len(file.AppLinks.Details)
			indexes[apps[i].ID] = index
			file.AppLinks.Details = append(file.AppLinks.Details, appleApp{AppIDs: []string{apps[i].ID}})
		}
		app := &file.AppLinks.Details[index]
		app.Components = appendComponents(app.Components, &apps[i])
	}
	return link.Marshal(file)
}

const handleAllURLs = "delegate_permission/common.handle_all_urls"

type googleStatement struct {
	Relation   []string     `json:"relation"`
	Target     googleTarget `json:"target"`
	Extensions struct {
		HandleAllURLs struct {
			Components []component `json:"dynamic_app_link_components"`
		} `json:"delegate_permission/common.handle_all_urls"`
	} `json:"relation_extensions"`
}

type googleTarget struct {
	Namespace    string   `json:"namespace"`
	PackageName  string   `json:"package_name"`
	Fingerprints []string `json:"sha256_cert_fingerprints"`
}

// renderGoogle returns a list of statements (Google, Digital Asset Links; Android, Configure website associations). From Android 15 on,
// the components limit an app to the links of its own organizations. Earlier, only the app's manifest decides which links of the host
// the app opens. Components must be declared once per app, so there is one statement per package.
func renderGoogle(apps []origin.App) ([]byte, error) {
	statements := []googleStatement{}
	indexes := make(map[string]int, len(apps))
	for i := range apps {
		index, listed := indexes[apps[i].ID]
		if !listed {
			index = len(statements)
			indexes[apps[i].ID] = index
			statements = append(statements, googleStatement{
				Relation: []string{handleAllURLs}, Target: googleTarget{Namespace: "android_app", PackageName: apps[i].ID},
			})
		}
		statement := &statements[index]
		statement.Target.Fingerprints = appendFingerprints(statement.Target.Fingerprints, apps[i].Fingerprints)
		handle := &statement.Extensions.HandleAllURLs
		handle.Components = appendComponents(handle.Components, &apps[i])
	}
	return link.Marshal(statements)
}

// appendFingerprints appends the fingerprints that are not listed yet, in upper case: Android compares them with one in upper case.
func appendFingerprints(fingerprints, more []string) []string {
	for _, fingerprint := range more {
		if fingerprint = strings.ToUpper(fingerprint); !slices.Contains(fingerprints, fingerprint) {
			fingerprints = append(fingerprints, fingerprint)
		}
	}
	return fingerprints
}
