// Package openapi has the description of the interface: openapi.yaml, which people edit, as JSON, and a page for browsers that shows it.
// It neither routes nor validates requests; tests compare the document with the routes, bounds and responses of the code.
package openapi

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"

	"github.com/swaggest/swgui/v5/static"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var source []byte

//go:embed page
var page embed.FS

// edges is the address of the edges in openapi.yaml.
const edges = "https://go.example.com"

// Policy is the Content-Security-Policy of the files: the page may load from, and send requests to, its own host only.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// File is what control serves at Path.
type File struct {
	Path, MediaType string
	Content         []byte
}

// Files returns the document, for edges that serve short URLs at linkBase, and the page with everything that it loads.
func Files(linkBase string) ([]File, error) {
	document, err := Document(linkBase)
	if err != nil {
		return nil, err
	}
	files := []File{{"/openapi.json", "application/json", document}}
	add := func(path, mediaType string, read func(string) ([]byte, error), name string) {
		if err != nil {
			return
		}
		var content []byte
		content, err = read(name)
		files = append(files, File{path, mediaType, content})
	}
	const script, style = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
	add("/docs", "text/html; charset=utf-8", page.ReadFile, "page/index.html")
	add("/docs/reader.js", script, page.ReadFile, "page/reader.js")
	add("/docs/swagger-ui-bundle.js", script, compressed, "swagger-ui-bundle.js.gz")
	add("/docs/swagger-ui.css", style, compressed, "swagger-ui.css.gz")
	add("/docs/favicon-32x32.png", "image/png", static.FS.ReadFile, "favicon-32x32.png")
	return files, err
}

// Document returns openapi.yaml as JSON, with linkBase as the address of the edges.
func Document(linkBase string) ([]byte, error) {
	var document map[string]any
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	paths, _ := document["paths"].(map[string]any)
	for _, item := range paths {
		item, _ := item.(map[string]any)
		servers, _ := item["servers"].([]any)
		for _, server := range servers {
			if server, ok := server.(map[string]any); ok && server["url"] == edges {
				server["url"] = linkBase
			}
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return text.Bytes(), nil
}

// compressed reads a file of Swagger UI that its module has with gzip only.
func compressed(name string) ([]byte, error) {
	file, err := static.FS.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return io.ReadAll(r)
}
