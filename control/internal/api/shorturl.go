package api

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

// shortURLs recognizes short URLs by the names of the shared host. It is immutable.
type shortURLs struct {
	shared []string // names of the shared host
}

func newShortURLs(base settings.LinkBase, extra []settings.HostName) shortURLs {
	s := shortURLs{shared: []string{"localhost"}}
	if parsed, err := url.Parse(string(base)); err == nil {
		s.shared = append(s.shared, strings.TrimSuffix(parsed.Hostname(), "."))
	}
	for _, host := range extra {
		s.shared = append(s.shared, string(host))
	}
	return s
}

var (
	orgKeySegment = regexp.MustCompile(`^[A-Za-z0-9]{4}$`)
	customHost    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$`)
	codeSegment   = regexp.MustCompile(catalog.ShortCodePattern)
)

// shortURLRef parses the URL that opened an app. ok is false when it is no short URL, so that no edge could resolve it. As on an edge, the path is
// neither decoded nor cleaned, and the port does not matter (edge/route.go, edge/host.go). The fragment is ignored, because edges never get it.
func (s shortURLs) shortURLRef(opened string) (ref store.ShortURLRef, ok bool) {
	opened, _, _ = strings.Cut(strings.TrimSpace(opened), "#")
	u, err := url.Parse(opened)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return store.ShortURLRef{}, false
	}
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	code := path
	if s.isShared(host) {
		orgKey, rest, _ := strings.Cut(path, "/")
		if !orgKeySegment.MatchString(orgKey) {
			return store.ShortURLRef{}, false
		}
		ref.OrgKey, code = strings.ToLower(orgKey), rest
	} else if ref.Host = host; !customHost.MatchString(host) {
		return store.ShortURLRef{}, false
	}
	ref.Code = strings.ToLower(code)
	return ref, codeSegment.MatchString(code)
}

func (s shortURLs) isShared(host string) bool {
	address, err := netip.ParseAddr(host)
	return slices.Contains(s.shared, host) || err == nil && address.Zone() == ""
}
