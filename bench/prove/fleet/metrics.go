package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// EdgeLoads counts an edge's loads from Postgres.
const EdgeLoads = "deeplink_edge_loads_total"

// EdgePolls counts the completed polls of an edge.
const EdgePolls = "deeplink_edge_poll_duration_seconds_count"

// Metric reads one counter or gauge of a node.
func Metric(ctx context.Context, admin, name string) (value float64, err error) {
	text, err := Fetch(ctx, "http://"+admin+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			_, err := fmt.Sscan(rest, &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", admin, name)
}

// Fetch returns the body of a page, which must exist.
func Fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := Client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", url, response.StatusCode, text)
	}
	return string(text), err
}
