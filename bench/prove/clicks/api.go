package clicks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"deeplink/bench/prove/fleet"
)

// page is a page of figures or of raw clicks, as far as this package reads it.
type page[Row any] struct {
	AsOf     time.Time `json:"asOf"`
	Complete bool      `json:"complete"`
	Missing  []missing `json:"missing"`
	Totals   struct {
		Clicks        int64            `json:"clicks"`
		ByClass       map[string]int64 `json:"byClass"`
		LateClicks    int64            `json:"lateClicks"`
		WithoutDetail int64            `json:"withoutDetail"`
	} `json:"totals"`
	Data       []Row   `json:"data"`
	NextCursor *string `json:"nextCursor"`
}

// missing is a log from which clicks may be absent.
type missing struct {
	Slot  string `json:"slot"`
	State string `json:"state"`
}

// linkFigure is a row of the figures by link.
type linkFigure struct {
	Key     *string          `json:"key"`
	Clicks  int64            `json:"clicks"`
	ByClass map[string]int64 `json:"byClass"`
}

// rawClick is a click as the raw list has it.
type rawClick struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	LinkID string    `json:"linkId"`
	Class  string    `json:"class"`
	Late   bool      `json:"late"`
}

// reader reads the API of the organization whose links are clicked.
type reader struct {
	organization fleet.Organization
	controls     []string
	from         time.Time // of all figures: before the run
}

const (
	figuresPath = "/analytics/clicks"
	rawPath     = "/analytics/clicks/raw"
	// readPatience bounds the attempts of one read: at most one control is down at a time, but Postgres may be.
	readPatience = 30 * time.Second
)

// everything are the parameters that no class and no outcome is left out with.
func (r *reader) everything(to time.Time, more ...string) url.Values {
	query := url.Values{"class": {"all"}, "outcome": {"all"}, "from": {r.from.Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}}
	for i := 0; i+1 < len(more); i += 2 {
		query.Set(more[i], more[i+1])
	}
	return query
}

// read reads one page from any control. It repeats what fails while processes are killed.
func read[Row any](ctx context.Context, r *reader, path string, query url.Values) (p page[Row], err error) {
	for began, attempt := time.Now(), 0; ; attempt++ {
		var response *http.Response
		var text []byte
		response, text, err = r.organization.Request(ctx, r.controls[attempt%len(r.controls)], http.MethodGet, path+"?"+query.Encode(), nil)
		switch {
		case err != nil:
		case response.StatusCode == http.StatusOK:
			p = page[Row]{}
			return p, json.Unmarshal(text, &p)
		default:
			err = fmt.Errorf("GET %s?%s: %d %s", path, query.Encode(), response.StatusCode, text)
			if response.StatusCode < 500 {
				return p, err
			}
		}
		if ctx.Err() != nil || time.Since(began) > readPatience {
			return p, err
		}
		fleet.Pause(ctx, 100*time.Millisecond)
	}
}
