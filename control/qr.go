package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"deeplink/shared/catalog"
	"deeplink/shared/qr"
)

// picture is a format in which QR codes are drawn.
type picture struct {
	name, mediaType string
	draw            func(text string, o qr.Options) ([]byte, error)
}

var (
	svgPicture = picture{"svg", "image/svg+xml", qr.SVG}
	pngPicture = picture{"png", "image/png", qr.PNG}
)

// drawLink answers GET /links/{id}/qr.svg and qr.png.
func (s *server) drawLink(p picture) authorized {
	return func(x *exchange, r *http.Request, organization catalog.Organization) error {
		id, badID := pathID(r)
		options, badOptions := readOptions(r.URL.RawQuery)
		if err := invalid(badID, badOptions); err != nil {
			return err
		}
		link, err := s.link(x, r, organization, id)
		if err != nil {
			return err
		}
		tag := p.tag(link.URL, options)
		header := x.Header()
		header.Set("ETag", tag)
		header.Set("Cache-Control", "private")
		if matches(r.Header.Values("If-None-Match"), tag) {
			x.WriteHeader(http.StatusNotModified)
			return nil
		}
		image, err := p.draw(link.URL, options)
		if err != nil {
			header.Del("ETag")
			header.Set("Cache-Control", "no-store")
			if errors.Is(err, qr.ErrSize) {
				return fault("size", "is too small for the QR code of this URL")
			}
			return err
		}
		x.send(http.StatusOK, p.mediaType, image)
		return nil
	}
}

// readOptions reads the query of a QR route (decisions.md 1). The error is a catalog.Invalid.
func readOptions(raw string) (qr.Options, error) {
	q := readQuery(raw)
	unset := qr.Defaults()
	options := qr.Options{
		Size:       q.integer("size", unset.Size, qr.MinSize, qr.MaxSize),
		Level:      parsed(q, "level", unset.Level, qr.ParseLevel, "must be L, M, Q or H"),
		Margin:     q.integer("margin", unset.Margin, 0, qr.MaxMargin),
		Foreground: parsed(q, "fg", unset.Foreground, qr.ParseColor, "must be six hex digits"),
		Background: parsed(q, "bg", unset.Background, qr.ParseColor, "must be six hex digits"),
	}
	return options, q.err()
}

// tag names the bytes of the image: they are a function of these values.
func (p picture) tag(url string, o qr.Options) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%+v", p.mediaType, url, o))
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// matches reports whether an If-None-Match names the tag (RFC 9110, 13.1.2: a weak comparison).
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
