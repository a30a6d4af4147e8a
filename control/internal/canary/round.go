package canary

import (
	"context"
	"fmt"
	"time"

	"deeplink/control/internal/edgeclient"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
	"deeplink/shared/requestid"
)

// The changes of a round, as labels of the metrics.
const (
	changeCreate = "create"
	changeEdit   = "edit"
	changeDelete = "delete"
)

// round is the life of one link.
type round struct {
	*Canary
	organization catalog.Organization
	link         catalog.Link // before its creation only the short code
	present      bool         // it was created and not deleted
	// states are the responses of an edge before the first change and after each change so far. complete is the index of the state after the
	// last complete change; edges may return it and later states.
	states   []edgeclient.Response
	complete int
	change   string // the last change, "" before the first
	created  time.Time
	checks   map[string]int
	cause    error // of the first check that failed
}

// newRound returns a round with a new random short code, which no edge has in its cache.
func newRound(c *Canary, organization catalog.Organization) *round {
	return &round{
		Canary: c, organization: organization, link: catalog.Link{ShortCode: catalog.GenerateCode()},
		states: []edgeclient.Response{edgeclient.NotFound}, checks: make(map[string]int),
	}
}

// live creates, edits and deletes the link, and checks the edges after each change. An error means that it could not continue.
func (r *round) live(ctx context.Context) error {
	// Edges now cache that the link does not exist, and must drop that when it is created.
	if err := r.checkEdges(ctx); err != nil {
		return err
	}
	defer r.cleanUp(ctx)
	for _, step := range []struct {
		change  string
		commit  func(context.Context) (feed.Change, edgeclient.Response, error)
		barrier barrier
	}{
		{changeCreate, r.create, r.relay.AwaitCreate},
		{changeEdit, r.edit, r.relay.Await},
		{changeDelete, r.delete, r.relay.Await},
	} {
		change, state, err := step.commit(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", step.change, err)
		}
		r.change, r.states = step.change, append(r.states, state)
		if r.wait(ctx, change, step.barrier) == relay.Complete {
			r.complete = len(r.states) - 1
		}
		if err := r.checkEdges(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) create(ctx context.Context) (change feed.Change, state edgeclient.Response, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	target := targetPrefix + requestid.New()
	wanted := catalog.Link{Path: "/canary", ShortCode: r.link.ShortCode, FallbackURL: &target, IsActive: true}
	link, change, err := r.store.CreateLink(ctx, actor, r.organization.ID, store.Unconditional, wanted)
	if err == nil {
		r.link, r.present, r.created = link, true, time.Now()
	}
	return change, edgeclient.RedirectTo(target), err
}

func (r *round) edit(ctx context.Context) (change feed.Change, state edgeclient.Response, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	target := targetPrefix + requestid.New()
	patch, err := catalog.ReadPatch([]byte(`{"fallbackUrl":"` + target + `"}`))
	if err != nil {
		return feed.Change{}, edgeclient.Response{}, err
	}
	_, change, err = r.store.UpdateLink(ctx, actor, r.organization.ID, store.Unconditional, r.link.ID, patch)
	return change, edgeclient.RedirectTo(target), err
}

func (r *round) delete(ctx context.Context) (change feed.Change, state edgeclient.Response, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	change, err = r.store.DeleteLink(ctx, actor, r.organization.ID, store.Unconditional, r.link.ID)
	if err == nil {
		r.present = false
	}
	return change, edgeclient.NotFound, err
}

// cleanUp deletes the link after an interrupted round, even when the process ends. It does not wait for the edges.
func (r *round) cleanUp(ctx context.Context) {
	if !r.present {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	// deleteLeftovers deletes it if this fails.
	_, _ = r.store.DeleteLink(ctx, actor, r.organization.ID, store.Unconditional, r.link.ID)
}

// barrier is one of the methods of [relay.Relay] that wait for a change.
type barrier func(context.Context, feed.Change) relay.Propagation

// wait waits for a change as long as a call of the API does.
func (r *round) wait(ctx context.Context, change feed.Change, b barrier) relay.Propagation {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	began := time.Now()
	propagation := b(ctx, change)
	r.metrics.propagation.WithLabelValues(r.change).Observe(time.Since(began).Seconds())
	return propagation
}

// result returns the result of the round. err is the reason why it could not continue.
func (r *round) result(err error) (string, error) {
	if err == nil {
		err = r.cause
	}
	switch {
	case r.checks[checkStale] > 0:
		return roundViolation, nil
	case r.checks[checkSuspended] > 0:
		return roundSuspended, nil
	case err != nil:
		return roundFailed, err
	case r.complete < len(r.states)-1 || r.checks[checkPending] > 0:
		return roundPending, nil
	case r.checks[checkFresh] == 0:
		return roundUnchecked, nil
	}
	return roundSuccess, nil
}
