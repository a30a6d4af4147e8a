package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/qr"
)

// qrFormat is a format of QR codes.
type qrFormat struct {
	name, mediaType string
	draw            func(text string, o qr.Options) ([]byte, error)
}

var (
	svgFormat = qrFormat{"svg", "image/svg+xml", qr.SVG}
	pngFormat = qrFormat{"png", "image/png", qr.PNG}
)

// drawLink serves GET /links/{id}/qr.svg and qr.png.
func (s *Server) drawLink(p qrFormat) orgHandler {
	return func(x *requestState, r *http.Request, organization catalog.Organization) error {
		id, badID := pathID(r)
		options, badOptions := readOptions(r.URL.RawQuery)
		if err := decode.Join(badID, badOptions); err != nil {
			return err
		}
		link, err := s.link(x, r, organization, store.LinkRef{ID: id})
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
				return decode.FieldError("size", "is too small for the QR code of this URL")
			}
			return err
		}
		x.send(http.StatusOK, p.mediaType, image)
		return nil
	}
}

// readOptions reads the query of a QR route. The error is a catalog.Invalid.
func readOptions(raw string) (qr.Options, error) {
	q := decode.ReadQuery(raw)
	unset := qr.Defaults()
	options := qr.Options{
		Size:       q.Integer("size", unset.Size, qr.MinSize, qr.MaxSize),
		Level:      decode.Parse(q, "level", unset.Level, qr.ParseLevel, "must be L, M, Q or H"),
		Margin:     q.Integer("margin", unset.Margin, 0, qr.MaxMargin),
		Foreground: decode.Parse(q, "fg", unset.Foreground, qr.ParseColor, "must be six hex digits"),
		Background: decode.Parse(q, "bg", unset.Background, qr.ParseColor, "must be six hex digits"),
	}
	return options, q.Err()
}

// tag returns the ETag of the image, whose bytes depend only on these values.
func (p qrFormat) tag(url string, o qr.Options) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%+v", p.mediaType, url, o))
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}
