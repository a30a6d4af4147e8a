package main

import (
	"context"
	"fmt"
	"time"

	"deeplink/control/internal/relay"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
	"deeplink/shared/requestid"
)

// The changes of a round, as a label of the metrics.
const (
	changeCreate = "create"
	changeEdit   = "edit"
	changeDelete = "delete"
)

// round is the life of one link.
type round struct {
	*canary
	organization catalog.Organization
	link         catalog.Link // nothing but its code before it is made
	present      bool         // it is made and not deleted
	// states are what an edge shows before the first change and after each so far. From complete on they may still be shown: its
	// change is the last that was answered complete.
	states   []answer
	complete int
	change   string // the last one, "" before the first
	created  time.Time
	checks   map[string]int
	cause    error // of the first check that failed
}

// newRound returns a round whose code nobody can guess and no edge was ever asked for.
func newRound(c *canary, organization catalog.Organization) *round {
	return &round{
		canary: c, organization: organization, link: catalog.Link{ShortCode: catalog.GenerateCode()},
		states: []answer{unknown}, checks: make(map[string]int),
	}
}

// live makes the link, edits and deletes it, and looks what edges show after each change. An error means that it could not go on.
func (r *round) live(ctx context.Context) error {
	// Edges now remember that there is nothing, and have something to forget when the link is made.
	if err := r.look(ctx); err != nil {
		return err
	}
	defer r.clear(ctx)
	for _, step := range []struct {
		change  string
		commit  func(context.Context) (feed.Change, answer, error)
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
		if err := r.look(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) create(ctx context.Context) (change feed.Change, state answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, canaryStore)
	defer cancel()
	target := canaryTarget + requestid.New()
	wanted := catalog.Link{Path: "/canary", ShortCode: r.link.ShortCode, FallbackURL: &target, IsActive: true}
	link, change, err := r.store.CreateLink(ctx, r.organization, wanted)
	if err == nil {
		r.link, r.present, r.created = link, true, time.Now()
	}
	return change, leadingTo(target), err
}

func (r *round) edit(ctx context.Context) (change feed.Change, state answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, canaryStore)
	defer cancel()
	target := canaryTarget + requestid.New()
	patch, err := catalog.ReadPatch([]byte(`{"fallbackUrl":"` + target + `"}`))
	if err != nil {
		return feed.Change{}, answer{}, err
	}
	_, change, err = r.store.UpdateLink(ctx, r.organization.ID, r.link.ID, patch)
	return change, leadingTo(target), err
}

func (r *round) delete(ctx context.Context) (change feed.Change, state answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, canaryStore)
	defer cancel()
	change, err = r.store.DeleteLink(ctx, r.organization.ID, r.link.ID)
	if err == nil {
		r.present = false
	}
	return change, unknown, err
}

// clear deletes the link of a round that was broken off, also when that was because the process ends. Nobody waits until edges know.
func (r *round) clear(ctx context.Context) {
	if !r.present {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), canaryCleanup)
	defer cancel()
	// One that stays is swept.
	_, _ = r.store.DeleteLink(ctx, r.organization.ID, r.link.ID)
}

// barrier waits for a change, in one of the ways of [relay.Relay].
type barrier func(context.Context, feed.Change) relay.Propagation

// wait waits for a change for as long as a call of the API does.
func (r *round) wait(ctx context.Context, change feed.Change, b barrier) relay.Propagation {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	began := time.Now()
	propagation := b(ctx, change)
	r.metrics.propagation.WithLabelValues(r.change).Observe(time.Since(began).Seconds())
	return propagation
}

// result returns how the round ended. err is why it could not go on, if so.
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
