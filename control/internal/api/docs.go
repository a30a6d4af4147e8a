package api

import (
	"net/http"

	"deeplink/control/internal/openapi"
)

// documentationRoutes serve the OpenAPI document, and the page that shows it.
func documentationRoutes(linkBase string) ([]route, error) {
	files, err := openapi.Files(linkBase)
	if err != nil {
		return nil, err
	}
	routes := make([]route, len(files))
	for i, file := range files {
		routes[i] = route{Method: http.MethodGet, Path: file.Path, answer: func(x *requestState, _ *http.Request) error {
			header := x.Header()
			header.Set("Content-Security-Policy", openapi.Policy)
			header.Set("Referrer-Policy", "no-referrer")
			x.send(http.StatusOK, file.MediaType, file.Content)
			return nil
		}}
	}
	return routes, nil
}
