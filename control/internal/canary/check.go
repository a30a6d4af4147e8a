package canary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/edgeclient"
	"deeplink/control/internal/store"
	"deeplink/shared/requestid"
)

// The classes of responses, as labels of the metrics.
const (
	checkFresh       = "fresh"        // the current state
	checkPending     = "pending"      // an earlier state, which is allowed: no later change was complete
	checkStale       = "stale"        // a state from before a complete change: a violation
	checkUnreachable = "unreachable"  // no response: the connection failed or was lost
	checkTimeout     = "timeout"      // no response in time
	checkLimited     = "rate_limited" // 429
	checkBroken      = "server_error" // 5xx
	checkSuspended   = "suspended"    // 410: an operator suspended the canary's organization
	checkUnexpected  = "unexpected"   // no state of the link, or not from an edge
)

// maxConcurrent bounds the concurrent requests to edges.
const maxConcurrent = 16

// visit is a request to one edge and its result.
type visit struct {
	edge      store.Edge
	requestID string
	answer    edgeclient.Response
	err       error
	ended     time.Time
	check     string
}

// checkEdges sends a request to every registered edge with an address, and classifies the responses.
func (r *round) checkEdges(ctx context.Context) error {
	edges, err := r.registered(ctx)
	if err != nil {
		return err
	}
	visits := make([]visit, len(edges))
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
	for i, edge := range edges {
		group.Go(func() error {
			v := visit{edge: edge, requestID: requestid.New()}
			v.answer, v.err = r.edges.Get(ctx, edge.Address, "/"+r.organization.OrgKey+"/"+r.link.ShortCode, v.requestID)
			v.ended, v.check = time.Now(), r.classify(v.answer, v.err)
			visits[i] = v
			return nil
		})
	}
	_ = group.Wait() // nothing returns an error
	stale := func(v visit) bool { return v.check == checkStale }
	if slices.ContainsFunc(visits, stale) && !r.linkIsAsLeft(ctx) {
		for i := range visits {
			if stale(visits[i]) {
				visits[i].check, visits[i].err = checkUnexpected, errLinkChanged
			}
		}
	}
	for _, v := range visits {
		r.count(ctx, v)
	}
	return ctx.Err()
}

// errLinkChanged: the link in the database is not as the last change left it, so that edges may return anything.
var errLinkChanged = errors.New("another client changed the canary's link")

// registered returns the edges that have an address.
func (r *round) registered(ctx context.Context) ([]store.Edge, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	edges, err := r.store.Edges(ctx)
	if err != nil {
		return nil, err
	}
	r.metrics.edges.Set(float64(len(edges)))
	all := len(edges)
	edges = slices.DeleteFunc(edges, func(e store.Edge) bool { return e.Address == "" })
	r.metrics.unaddressed.Set(float64(all - len(edges)))
	return edges, nil
}

// classify returns the class of a response. The request was sent after the wait for the last change.
func (r *round) classify(got edgeclient.Response, err error) string {
	var network net.Error
	switch {
	case errors.Is(err, edgeclient.ErrNotAnEdge):
		return checkUnexpected
	case errors.As(err, &network) && network.Timeout():
		return checkTimeout
	case err != nil:
		return checkUnreachable
	case got.Status == http.StatusTooManyRequests:
		return checkLimited
	case got.Status >= 500:
		return checkBroken
	case got.Status == http.StatusGone:
		return checkSuspended
	}
	// Of two equal states the later one counts, so that a correct response is never a violation.
	for i := len(r.states) - 1; i >= 0; i-- {
		switch {
		case got != r.states[i]:
		case i == len(r.states)-1:
			return checkFresh
		case i >= r.complete:
			return checkPending
		default:
			return checkStale
		}
	}
	return checkUnexpected
}

// linkIsAsLeft reports whether the link in the database is as the last change left it. Otherwise an operator changed it, or a failover lost it, and
// an old version is not the fault of the edge.
func (r *round) linkIsAsLeft(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	link, err := r.store.Link(ctx, r.organization.ID, r.link.ID)
	switch left := r.states[len(r.states)-1]; {
	case errors.Is(err, store.ErrNotFound):
		return left == edgeclient.NotFound
	case err != nil:
		return true
	default:
		return link.IsActive && link.ShortCode == r.link.ShortCode && link.FallbackURL != nil && edgeclient.RedirectTo(*link.FallbackURL) == left
	}
}

// count counts a visit.
func (r *round) count(ctx context.Context, v visit) {
	r.checks[v.check]++
	r.metrics.checks.WithLabelValues(v.check).Inc()
	switch v.check {
	case checkFresh:
		if r.change == changeCreate {
			r.metrics.served.Observe(v.ended.Sub(r.created).Seconds())
		}
	case checkPending, checkSuspended:
	case checkStale:
		r.metrics.violations.Inc()
		r.log.LogAttrs(ctx, slog.LevelError, "an edge answered from before a complete change", slog.String("slot", v.edge.Slot),
			slog.String("change", r.change), slog.String("expected", r.states[len(r.states)-1].String()),
			slog.String("answered", v.answer.String()), slog.String("requestId", v.requestID))
	default:
		if r.cause == nil {
			r.cause = fmt.Errorf("edge %s: %s", v.edge.Slot, v.check)
			if v.err != nil {
				r.cause = fmt.Errorf("%w: %w", r.cause, v.err)
			}
		}
	}
}
