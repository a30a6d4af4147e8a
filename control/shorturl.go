package main

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/settings"
)

// shortURLs tells which of them the edges answer. It is not changed once made.
type shortURLs struct {
	shared []string // names of the shared host
}

func newShortURLs(base settings.LinkBase, extra []string) shortURLs {
	s := shortURLs{shared: []string{"localhost"}}
	if parsed, err := url.Parse(string(base)); err == nil {
		s.shared = append(s.shared, strings.TrimSuffix(parsed.Hostname(), "."))
	}
	for _, host := range extra {
		s.shared = append(s.shared, strings.ToLower(strings.TrimSuffix(strings.TrimSpace(host), ".")))
	}
	return s
}

var (
	orgKeySegment = regexp.MustCompile(`^[A-Za-z0-9]{4}$`)
	customHost    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$`)
	codeSegment   = regexp.MustCompile(catalog.ShortCodePattern)
)

// place reads the URL that opened an app. ok is false when it is no short URL: an edge would not redirect it, whatever links there are.
// As on an edge nothing is decoded and nothing cleaned, and the port is not looked at (edge/route.go, edge/host.go). A fragment, which
// no edge ever sees, may be anything.
func (s shortURLs) place(opened string) (place store.Place, ok bool) {
	opened, _, _ = strings.Cut(strings.TrimSpace(opened), "#")
	u, err := url.Parse(opened)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return store.Place{}, false
	}
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	code := path
	if s.isShared(host) {
		orgKey, rest, _ := strings.Cut(path, "/")
		if !orgKeySegment.MatchString(orgKey) {
			return store.Place{}, false
		}
		place.OrgKey, code = strings.ToLower(orgKey), rest
	} else if place.Host = host; !customHost.MatchString(host) {
		return store.Place{}, false
	}
	place.Code = strings.ToLower(code)
	return place, codeSegment.MatchString(code)
}

func (s shortURLs) isShared(host string) bool {
	address, err := netip.ParseAddr(host)
	return slices.Contains(s.shared, host) || err == nil && address.Zone() == ""
}
