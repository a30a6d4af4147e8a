package main

import (
	"bytes"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"deeplink/shared/catalog"
	"deeplink/shared/qr"
)

// The landing page is where a click ends when neither the link nor its organization names a place on the web: what the link is
// about, where to get the app, and a QR code that brings the link to a phone. It works without scripts and loads nothing but the
// link's own picture.

//go:embed pages
var pages embed.FS

var landingPage = template.Must(template.ParseFS(pages, "pages/landing.html"))

const (
	// maxPage is how large a page may be, in bytes (decisions.md 3). Its nonce takes less than nonceRoom of them.
	maxPage   = 15_000
	nonceRoom = 100
	// noncePlace stands in a rendered page, before anything that a link brings in, where the nonce of a response goes.
	noncePlace = "nonce-place"
)

// landing is what the page shows. What is empty is left out.
type landing struct {
	Nonce              string
	Title, Description string
	Image              string // https only: the page may load nothing else
	AppStore, Play     string
	URL                []string // of the link without its scheme, as people type it, in pieces between which a line may break
	QR                 template.HTML
}

// renderLanding returns the page of a link before and after its nonce. A text that is very long leaves no room for pictures.
func renderLanding(link *catalog.Link, config catalog.AppConfig) (head, tail []byte, err error) {
	_, typed, _ := strings.Cut(link.URL, "://")
	page := landing{Nonce: noncePlace, Title: "Continue in the app", URL: strings.SplitAfter(typed, "/")}
	if og := link.OG; og != nil {
		if og.Title != nil {
			page.Title = *og.Title
		}
		if og.Description != nil {
			page.Description = *og.Description
		}
		if og.ImageURL != nil && strings.HasPrefix(*og.ImageURL, "https://") {
			page.Image = *og.ImageURL
		}
	} else {
		page.Description = "This link opens in an app on your phone."
	}
	if ios := config.IOS; ios != nil && ios.AppStoreID != nil {
		page.AppStore = "https://apps.apple.com/app/id" + url.PathEscape(*ios.AppStoreID)
	}
	if android := config.Android; android != nil && android.PackageName != nil {
		page.Play = "https://play.google.com/store/apps/details?id=" + url.QueryEscape(*android.PackageName)
	}
	if page.QR, err = drawQR(link.URL); err != nil {
		return nil, nil, err
	}
	html, err := page.render()
	if err == nil && len(html)+nonceRoom > maxPage {
		page.QR, page.Image = "", ""
		html, err = page.render()
	}
	head, tail, _ = bytes.Cut(html, []byte(noncePlace))
	return head, tail, err
}

func (l landing) render() ([]byte, error) {
	var html bytes.Buffer
	err := landingPage.Execute(&html, l)
	return html.Bytes(), err
}

// drawQR returns the code as an element of the page; nothing when the text is too long for one.
func drawQR(text string) (template.HTML, error) {
	svg, err := qr.SVG(text, qr.Defaults())
	if errors.Is(err, qr.ErrText) || errors.Is(err, qr.ErrSize) {
		return "", nil
	}
	return template.HTML(svg), err
}

// land answers with the landing page.
func land(ctx *fasthttp.RequestCtx, link record) {
	nonce := rand.Text()
	head, tail := link.landing()
	ctx.Response.Header.Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+
		"'; img-src https: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	ctx.SetContentType("text/html; charset=utf-8")
	ctx.Response.AppendBody(head)
	ctx.Response.AppendBodyString(nonce)
	ctx.Response.AppendBody(tail)
}
