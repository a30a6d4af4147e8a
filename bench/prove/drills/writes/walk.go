package writes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
)

// walk goes through a long list by cursor while other links are created, edited and deleted.
type walk struct{ links int }

const (
	perPage = 100
	// touched is every which link is edited or deleted during the walk; the others must be seen exactly once.
	touched = 97
	// maxSlowdown bounds the median page of the last tenth compared with that of the first.
	maxSlowdown = 1.5
)

// fillSQL creates links with the external ids x1, x2 …, one a millisecond.
const fillSQL = `
	insert into links (id, organization_id, domain_id, short_code, path, external_id, created_at)
	select gen_random_uuid(), o.id, d.id, 'c' || n, '/p', 'x' || n, now() - n * interval '1 ms'
	from organizations o join domains d on d.organization_id = o.id, generate_series($2::int, $3::int) n where o.org_key = $1`

func (d walk) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	o, err := fleet.NewOrganization(ctx, f.OperatorCommand)
	if err != nil {
		return nil, err
	}
	if err := d.fill(ctx, f, o); err != nil {
		return nil, err
	}
	editing, stop := context.WithCancel(ctx)
	var editor sync.WaitGroup
	var edits int
	var editErr error
	editor.Go(func() { edits, editErr = d.edit(editing, f, o) })
	seen, took, err := d.follow(ctx, f, o)
	stop()
	editor.Wait()
	if err != nil || editErr != nil {
		return nil, fmt.Errorf("walk: %w, edit: %w", err, editErr)
	}
	skipped, twice := 0, 0
	for n := 1; n <= d.links; n++ {
		switch times := seen[fmt.Sprintf("x%d", n)]; {
		case n%touched == 0:
		case times == 0:
			skipped++
		case times > 1:
			twice++
		}
	}
	tenth := len(took) / 10
	first, last := median(took[:tenth]), median(took[len(took)-tenth:])
	ratio := float64(last) / float64(first)
	return []figures.Finding{
		figures.None("links that were skipped", skipped, d.links), figures.None("links that were seen twice", twice, d.links),
		figures.Counted("links created, edited and deleted during the walk", fmt.Sprint(edits), "> 0", edits > 0),
		{What: fmt.Sprintf("median page of the last tenth of %d, compared with the first (%s)", len(took), figures.Milliseconds(first)),
			Figure: fmt.Sprintf("%.2f", ratio), Bound: fmt.Sprintf("≤ %.1f", maxSlowdown), Kept: ratio <= maxSlowdown, Timed: true},
	}, nil
}

func (d walk) fill(ctx context.Context, f *fleet.Fleet, o fleet.Organization) error {
	conn, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	const portion = 20_000
	for from := 1; from <= d.links; from += portion {
		if _, err := conn.Exec(ctx, fillSQL, o.OrgKey, from, min(from+portion-1, d.links)); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, `vacuum analyze links`)
	return err
}

// edit creates, edits and deletes links until ctx ends: one in touched from both ends of the list, and new ones.
func (d walk) edit(ctx context.Context, f *fleet.Fleet, o fleet.Organization) (edits int, err error) {
	pace := time.NewTicker(20 * time.Millisecond) // below the limit of writes
	defer pace.Stop()
	for n := touched; ; n += touched {
		for _, request := range []struct {
			method, id string
			body       any
		}{
			{http.MethodPut, fmt.Sprintf("new%d", n), map[string]any{"path": "/new"}},
			{http.MethodPut, fmt.Sprintf("x%d", n%d.links/touched*touched+touched), map[string]any{"title": fmt.Sprint("edited ", n), "path": "/p"}},
			{http.MethodDelete, fmt.Sprintf("x%d", (d.links-n%d.links)/touched*touched+touched), nil},
		} {
			select {
			case <-ctx.Done():
				return edits, nil
			case <-pace.C:
			}
			response, text, err := o.Request(context.WithoutCancel(ctx), f.Controls[0].Addr, request.method, "/links/external/"+request.id, request.body)
			if err != nil {
				return edits, err
			}
			if response.StatusCode >= 400 && response.StatusCode != http.StatusNotFound {
				return edits, fmt.Errorf("%s %s: %d %s", request.method, request.id, response.StatusCode, text)
			}
			edits++
		}
	}
}

// follow walks the list, at the controls in turn, and returns how often it saw each external id and how long each page took.
func (d walk) follow(ctx context.Context, f *fleet.Fleet, o fleet.Organization) (seen map[string]int, took []time.Duration, err error) {
	seen = make(map[string]int, d.links)
	for cursor := new(""); cursor != nil; {
		began := time.Now()
		response, text, err := o.Request(ctx, f.Controls[len(took)%2].Addr, http.MethodGet, fmt.Sprintf("/links?limit=%d&after=%s", perPage, *cursor), nil)
		if err != nil {
			return nil, nil, err
		}
		took = append(took, time.Since(began))
		var page struct {
			Data       []struct{ ExternalID string }
			NextCursor *string
		}
		if err := json.Unmarshal(text, &page); err != nil || response.StatusCode != http.StatusOK {
			return nil, nil, fmt.Errorf("%d %.300s: %w", response.StatusCode, text, err)
		}
		for _, link := range page.Data {
			seen[link.ExternalID]++
		}
		cursor = page.NextCursor
	}
	return seen, took, nil
}

func median(spans []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(spans))
	return sorted[len(sorted)/2]
}
