package main

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/swaggest/swgui/v5/static"
)

//go:embed docs
var reader embed.FS

// readerPolicy lets the reader load, and send requests to, this host only.
const readerPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// documentationRoutes answer with the document of the routes and of themselves, and with a reader for it which loads nothing
// from another host.
func documentationRoutes(routes []route, linkBase string) ([]route, error) {
	spec := &file{mediaType: mediaJSON}
	page, err := embedded("docs/index.html", "text/html; charset=utf-8")
	if err != nil {
		return nil, err
	}
	documented := []route{
		{huma.Operation{
			OperationID: "openapi", Method: http.MethodGet, Path: "/openapi.json", Tags: []string{tagService}, Summary: "Read this document",
			Responses: responses(nil).with(http.StatusOK, described("The document.", map[string]*huma.MediaType{mediaJSON: {}})),
		}, spec.answer},
		{huma.Operation{
			OperationID: "docs", Method: http.MethodGet, Path: "/docs", Tags: []string{tagService}, Summary: "Read this document in a browser",
			Responses: responses(nil).with(http.StatusOK, described("A page.", map[string]*huma.MediaType{"text/html": {}})),
		}, page.answer},
	}
	spec.content, err = document(append(routes, documented...), linkBase)
	if err != nil {
		return nil, err
	}
	assets, err := readerAssets()
	if err != nil {
		return nil, err
	}
	for name, asset := range assets {
		documented = append(documented, route{huma.Operation{Method: http.MethodGet, Path: "/docs/" + name}, asset.answer})
	}
	return documented, nil
}

// file is an answer that is always the same.
type file struct {
	mediaType string
	content   []byte
}

func (f *file) answer(x *exchange, _ *http.Request) error {
	header := x.Header()
	header.Set("Content-Security-Policy", readerPolicy)
	header.Set("Referrer-Policy", "no-referrer")
	x.send(http.StatusOK, f.mediaType, f.content)
	return nil
}

// readerAssets are what the page loads, by name.
func readerAssets() (map[string]*file, error) {
	script, err := embedded("docs/reader.js", "text/javascript; charset=utf-8")
	if err != nil {
		return nil, err
	}
	assets := map[string]*file{"reader.js": script}
	for name, mediaType := range map[string]string{
		"swagger-ui-bundle.js": "text/javascript; charset=utf-8",
		"swagger-ui.css":       "text/css; charset=utf-8",
	} {
		compressed, err := static.FS.ReadFile(name + ".gz")
		if err != nil {
			return nil, err
		}
		content, err := gunzip(compressed)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		assets[name] = &file{mediaType, content}
	}
	const icon = "favicon-32x32.png"
	content, err := static.FS.ReadFile(icon)
	if err != nil {
		return nil, err
	}
	assets[icon] = &file{"image/png", content}
	return assets, nil
}

func embedded(name, mediaType string) (*file, error) {
	content, err := reader.ReadFile(name)
	return &file{mediaType, content}, err
}

func gunzip(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
