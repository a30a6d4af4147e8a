package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// pageRoutes serve static files. Browsers keep them and revalidate them with their ETag, so that a page never runs with scripts of another
// version. Volatile pages are shown only at the address of the console, where the cookies are.
func (s *Server) pageRoutes() []route {
	routes := make([]route, len(s.Pages))
	for i, page := range s.Pages {
		sum := sha256.Sum256(page.Content)
		tag := `"` + hex.EncodeToString(sum[:16]) + `"`
		routes[i] = route{Method: http.MethodGet, Path: page.Path, answer: func(x *requestState, r *http.Request) error {
			header := x.Header()
			header.Set("Content-Security-Policy", page.Policy)
			if page.Volatile {
				if s.moved(x, r) {
					return nil
				}
				x.send(http.StatusOK, page.MediaType, page.Content)
				return nil
			}
			header.Set("Cache-Control", "no-cache")
			header.Set("ETag", tag)
			if matches(r.Header.Values("If-None-Match"), tag) {
				x.WriteHeader(http.StatusNotModified)
				return nil
			}
			x.send(http.StatusOK, page.MediaType, page.Content)
			return nil
		}}
	}
	return routes
}

// matches reports whether an If-None-Match has the tag, by weak comparison (RFC 9110, 13.1.2).
func matches(ifNoneMatch []string, tag string) bool {
	for _, line := range ifNoneMatch {
		for candidate := range strings.SplitSeq(line, ",") {
			candidate = strings.TrimSpace(candidate)
			if candidate == "*" || strings.TrimPrefix(candidate, "W/") == tag {
				return true
			}
		}
	}
	return false
}
