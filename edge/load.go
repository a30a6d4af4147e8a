package main

import (
	"context"
	"fmt"

	"deeplink/edge/internal/link"
	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/page"
	"deeplink/edge/internal/replica"
	"deeplink/edge/internal/wellknown"
)

// newLoad returns how the replica loads a key that it does not have: it queries Postgres and renders a link record, or an association
// file if the code is the path of one. base is LINK_BASE_URL. errors learns which domains want HTML error pages.
func newLoad(from *origin.Origin, base string, errors *errorPages) replica.Load {
	return func(ctx context.Context, domain, code string) (replica.Result, error) {
		if file := wellknown.Index(code); file >= 0 {
			return wellknown.Files[file].Load(ctx, from, domain)
		}
		load := errors.startLoad()
		found, err := from.Link(ctx, domain, code)
		if err != nil {
			return replica.Result{}, err
		}
		errors.record(domain, load, found.OrgKey != "", found.AppConfig.HTMLErrorPages)
		if found.Link == nil {
			if found.OrgKey == "" {
				return replica.Result{}, nil
			}
			// The organization is known, so the response is counted as one of an unknown code.
			return replica.Result{OrgKey: found.OrgKey, Value: link.Missing(found.OrgKey), Missing: true}, nil
		}
		r, err := link.New(base, found, page.Prepare)
		if err != nil {
			return replica.Result{}, fmt.Errorf("render %s/%s: %w", domain, code, err)
		}
		return replica.Result{OrgKey: found.OrgKey, Value: r}, nil
	}
}
