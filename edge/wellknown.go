package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strings"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/replica"
	"deeplink/shared/envelope"
	"deeplink/shared/feed"
)

// Paths of the files that associate apps with a host. No short code has such a form, so with a domain before it the path is a key of
// the replica. Apple's documents name no other place; the file at the root of a host is of a time before them.
const (
	appleAssociation  = "/.well-known/apple-app-site-association"
	googleAssociation = "/.well-known/assetlinks.json"
)

// associationFile is one of the files: devices of a platform learn from it which apps may open the links of a host.
//
// Organizations on the shared host are in one file, the oldest first, and those for which it has no room need a custom domain.
type associationFile struct {
	path     string
	platform origin.Platform
	// most is how many bytes the platform reads.
	most   int
	render func([]origin.App) ([]byte, error)
}

var associationFiles = [...]associationFile{
	// 128 KB: Apple, App Search Programming Guide, revision of 2016-04-01, which does not say of how many bytes a KB is.
	{appleAssociation, origin.IOS, 128_000, renderAppleAssociation},
	// 1 MiB: Android, StatementService, HTTP_CONTENT_SIZE_LIMIT_IN_BYTES.
	{googleAssociation, origin.Android, 1 << 20, renderGoogleAssociation},
}

// associationFileOf returns the index of the file that the code of a key, which is a path without its first slash, names; -1 when it
// is a short code.
func associationFileOf(code string) int {
	for i := range associationFiles {
		if associationFiles[i].path[1:] == code {
			return i
		}
	}
	return -1
}

// associationRoute is the route of an association file.
func (h *hosts) associationRoute(buf, host, path []byte) route {
	key, place := h.find(buf, host)
	switch place {
	case nowhere:
		return route{kind: kindWellKnown, refused: &noRoute}
	case sharedHost:
		key = append(key, feed.SharedDomain...)
	}
	return route{kind: kindWellKnown, key: append(key, path...), domain: len(key)}
}

// associate answers an association file. Neither suspension nor a plan keeps an app out of it: a device or Apple's CDN that is told
// of no app remembers that for days after the links are back. For the same reason a host of ours that has no app is told so with an
// empty list, and not with a status that could be taken for a failure. Like every answer it is not to be cached: an app config that
// was replaced must not live on below the edge.
func (s *server) associate(ctx *fasthttp.RequestCtx, to *route) {
	now := ctx.Time()
	if wait := s.limiter.Take(s.client(ctx), now); wait > 0 {
		refuse(ctx, limited(wait))
		return
	}
	value, err := s.links.Get(now, to.key, to.domain)
	if err != nil {
		s.fail(ctx, err)
		return
	}
	if value == nil {
		refuse(ctx, &noRoute)
		return
	}
	file := association(value)
	if string(to.key[:to.domain]) == feed.SharedDomain {
		s.noteLeftOut(associationFileOf(string(to.key[to.domain+1:])), file.leftOut())
	}
	ctx.SetContentType(envelope.ContentType)
	ctx.Response.SetBodyRaw(file.body())
}

// noteLeftOut keeps how many organizations a file of the shared host has no room for, and logs it when it is another number.
func (s *server) noteLeftOut(file, organizations int) {
	if was := s.requests.leftOut[file].Swap(int64(organizations)); was != int64(organizations) && organizations > 0 {
		s.log.Warn("the shared host's association file has no room for some organizations: they need a custom domain",
			slog.String("path", associationFiles[file].path), slog.Int("organizations", organizations))
	}
}

// association is a rendered file, as the replica keeps it: how many organizations it has no room for (uint32), and the body.
type association []byte

func (a association) leftOut() int { return int(binary.LittleEndian.Uint32(a)) }
func (a association) body() []byte { return a[4:] }

// load renders the file for a domain.
func (f *associationFile) load(ctx context.Context, from *origin.Origin, domain string) (replica.Answer, error) {
	apps, err := from.Apps(ctx, f.platform, domain)
	if err != nil || domain != feed.SharedDomain && apps.OrgKey == "" {
		return replica.Answer{}, err
	}
	body, fitting, err := f.fit(apps.List)
	if err != nil {
		return replica.Answer{}, fmt.Errorf("render %s of %s: %w", f.path, domain, err)
	}
	value := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(apps.Total-fitting))
	return replica.Answer{OrgKey: apps.OrgKey, Value: append(value, body...)}, nil
}

// fit renders the file for as many of the apps as fit in, the first ones, and returns how many they are.
func (f *associationFile) fit(apps []origin.App) (body []byte, fitting int, err error) {
	if body, err = f.render(apps); err != nil || len(body) <= f.most {
		return body, len(apps), err
	}
	fitting = sort.Search(len(apps), func(i int) bool {
		body, err := f.render(apps[:i+1])
		return err != nil || len(body) > f.most
	})
	body, err = f.render(apps[:fitting])
	return body, fitting, err
}

// component is a pattern of paths. The first that matches counts, on both platforms; a path that none matches is not for the app.
type component struct {
	Path    string `json:"/"`
	Exclude bool   `json:"exclude,omitempty"`
}

// appendComponents appends the patterns of an app's links. What /data answers is for programs.
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

// renderAppleAssociation returns an apple-app-site-association file (Apple, applinks). Patterns match without regard to case, as
// organization keys do; iOS 13 does not know that and matches short URLs as they are made. iOS 12 and before knew paths in the place of
// components, of which the documents say nothing any more: they get the page of a link. An app that several organizations have is
// listed once, because it is not documented what else would happen.
func renderAppleAssociation(apps []origin.App) ([]byte, error) {
	var file appleFile
	file.AppLinks.Details = []appleApp{}
	places := make(map[string]int, len(apps))
	for i := range apps {
		place, listed := places[apps[i].ID]
		if !listed {
			place = len(file.AppLinks.Details)
			places[apps[i].ID] = place
			file.AppLinks.Details = append(file.AppLinks.Details, appleApp{AppIDs: []string{apps[i].ID}})
		}
		app := &file.AppLinks.Details[place]
		app.Components = appendComponents(app.Components, &apps[i])
	}
	return renderJSON(file)
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

// renderGoogleAssociation returns a list of statements (Google, Digital Asset Links; Android, Configure website associations). The
// components keep an app to the links of its own organizations from Android 15 on; before, its manifest alone says which links of the
// host it opens. They must be declared once for an app, so there is one statement for a package.
func renderGoogleAssociation(apps []origin.App) ([]byte, error) {
	statements := []googleStatement{}
	places := make(map[string]int, len(apps))
	for i := range apps {
		place, listed := places[apps[i].ID]
		if !listed {
			place = len(statements)
			places[apps[i].ID] = place
			statements = append(statements, googleStatement{
				Relation: []string{handleAllURLs}, Target: googleTarget{Namespace: "android_app", PackageName: apps[i].ID},
			})
		}
		statement := &statements[place]
		statement.Target.Fingerprints = appendFingerprints(statement.Target.Fingerprints, apps[i].Fingerprints)
		handle := &statement.Extensions.HandleAllURLs
		handle.Components = appendComponents(handle.Components, &apps[i])
	}
	return renderJSON(statements)
}

// appendFingerprints appends those that are not there yet, in upper case, which is how Android writes the one it compares them with.
func appendFingerprints(fingerprints, more []string) []string {
	for _, fingerprint := range more {
		if fingerprint = strings.ToUpper(fingerprint); !slices.Contains(fingerprints, fingerprint) {
			fingerprints = append(fingerprints, fingerprint)
		}
	}
	return fingerprints
}
