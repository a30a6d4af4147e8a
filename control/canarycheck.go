package main

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

	"deeplink/control/internal/store"
	"deeplink/shared/requestid"
)

// What an edge's answer counts as, as a label of the metrics.
const (
	checkFresh       = "fresh"        // the present state
	checkPending     = "pending"      // an earlier one, which it may show: no later change was answered complete
	checkStale       = "stale"        // one from before a complete change: a violation
	checkUnreachable = "unreachable"  // no answer: no connection, or a lost one
	checkTimeout     = "timeout"      // no answer in time
	checkLimited     = "rate_limited" // 429
	checkBroken      = "server_error" // 5xx
	checkSuspended   = "suspended"    // 410: the canary's organization was suspended meanwhile
	checkUnexpected  = "unexpected"   // no state of the link, or not from an edge at all
)

// visitsAtOnce bounds how many edges are asked at once.
const visitsAtOnce = 16

// visit is what became of asking one edge.
type visit struct {
	edge      store.Edge
	requestID string
	answer    answer
	err       error
	ended     time.Time
	check     string
}

// look asks every registered edge that says where it is, and judges what they answer.
func (r *round) look(ctx context.Context) error {
	edges, err := r.registered(ctx)
	if err != nil {
		return err
	}
	visits := make([]visit, len(edges))
	var group errgroup.Group
	group.SetLimit(visitsAtOnce)
	for i, edge := range edges {
		group.Go(func() error {
			v := visit{edge: edge, requestID: requestid.New()}
			v.answer, v.err = r.visitor.ask(ctx, edge.Address, "/"+r.organization.OrgKey+"/"+r.link.ShortCode, v.requestID)
			v.ended, v.check = time.Now(), r.judge(v.answer, v.err)
			visits[i] = v
			return nil
		})
	}
	_ = group.Wait() // nothing returns an error
	stale := func(v visit) bool { return v.check == checkStale }
	if slices.ContainsFunc(visits, stale) && !r.stands(ctx) {
		for i := range visits {
			if stale(visits[i]) {
				visits[i].check, visits[i].err = checkUnexpected, errDisturbed
			}
		}
	}
	for _, v := range visits {
		r.note(ctx, v)
	}
	return ctx.Err()
}

// errDisturbed: the database does not have what the last change left there, so that edges may show anything.
var errDisturbed = errors.New("somebody else changed the canary's link")

// registered returns the edges that say where they are.
func (r *round) registered(ctx context.Context) ([]store.Edge, error) {
	ctx, cancel := context.WithTimeout(ctx, canaryStore)
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

// judge returns what an answer counts as. It was asked for after the last change was answered.
func (r *round) judge(got answer, err error) string {
	var network net.Error
	switch {
	case errors.Is(err, errNoEdge):
		return checkUnexpected
	case errors.As(err, &network) && network.Timeout():
		return checkTimeout
	case err != nil:
		return checkUnreachable
	case got.status == http.StatusTooManyRequests:
		return checkLimited
	case got.status >= 500:
		return checkBroken
	case got.status == http.StatusGone:
		return checkSuspended
	}
	// Of two states that look alike the later one is taken: nobody is accused of what may be well.
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

// stands reports whether the database has what the last change left there: whether an edge that shows an earlier state has no excuse.
// A link that an operator touched, or that was lost with a primary, is not an edge's fault.
func (r *round) stands(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, canaryStore)
	defer cancel()
	link, err := r.store.Link(ctx, r.organization.ID, r.link.ID)
	switch left := r.states[len(r.states)-1]; {
	case errors.Is(err, store.ErrNotFound):
		return left == unknown
	case err != nil:
		return true
	default:
		return link.IsActive && link.ShortCode == r.link.ShortCode && link.FallbackURL != nil && leadingTo(*link.FallbackURL) == left
	}
}

// note counts a visit.
func (r *round) note(ctx context.Context, v visit) {
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
