package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/settings"
)

const (
	// minCanary and maxCanary bound CONTROL_CANARY, which may also be 0.
	minCanary, maxCanary = time.Second, time.Hour
	// canaryStart is within what time after the start the first round begins. Several controls started at once spread over it.
	canaryStart = 2 * time.Second
	// canaryRound bounds a round, and canaryStore each of its calls to the store.
	canaryRound, canaryStore = time.Minute, 5 * time.Second
	// canaryCleanup bounds the removal of the link of a round that was broken off: the end of the process waits for it.
	canaryCleanup = time.Second
	// canaryLeftover is how old a link must be to be that of a control which was killed: much older than a round gets.
	canaryLeftover = 5 * time.Minute

	// canaryOrganization is the external id of the organization that all canaries share.
	canaryOrganization = "deeplink-canary"
	// canaryTarget begins every destination. No such host can exist (RFC 6761, 6.4).
	canaryTarget = "https://deeplink-canary.invalid/"
)

// How a round ended, as a label of the metrics.
const (
	roundSuccess   = "success"   // every change was complete, and every edge that was asked showed it
	roundPending   = "pending"   // a change was not answered complete; nothing else was wrong
	roundUnchecked = "unchecked" // there was no edge to ask
	roundSuspended = "suspended" // an operator suspended the organization
	roundFailed    = "failed"    // Postgres or an edge could not be asked, or answered what is no state of the link
	roundViolation = "violation" // an edge answered from before a complete change
)

// canary holds the promise to account in production (freshness.md, How it is proven, 4): it makes a link, edits and deletes it, in
// the way of the API, and after each of these asks every edge. It is nobody's duty to wait for it, and what goes wrong here goes wrong
// nowhere else. Every control runs one.
type canary struct {
	store   *store.Store
	relay   *relay.Relay
	visitor *visitor
	every   time.Duration
	log     *slog.Logger
	metrics *canaryMetrics

	swept time.Time // when left-over links were last looked for
	last  string    // how the last round ended
}

// newCanary returns a canary that pauses for every between two rounds. It needs one connection of the store's at a time.
func newCanary(s *store.Store, r *relay.Relay, base settings.LinkBase, every time.Duration, log *slog.Logger) *canary {
	return &canary{store: s, relay: r, visitor: newVisitor(base), every: every, log: log, metrics: newCanaryMetrics()}
}

// run makes rounds until ctx ends. The relay must be run beside it.
func (c *canary) run(ctx context.Context) error {
	pause := rand.N(min(c.every, canaryStart))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		result, err := c.round(ctx)
		if ctx.Err() != nil {
			return nil // a round that was broken off says nothing
		}
		c.report(ctx, result, err)
		pause = c.every
	}
}

// round lets one link live and returns how that went; err is why it failed.
func (c *canary) round(ctx context.Context) (result string, err error) {
	ctx, cancel := context.WithTimeout(ctx, canaryRound)
	defer cancel()
	organization, err := c.organization(ctx)
	if err != nil {
		return roundFailed, err
	}
	if organization.Suspended {
		return roundSuspended, nil
	}
	if err := c.sweep(ctx, organization); err != nil {
		return roundFailed, err
	}
	r := newRound(c, organization)
	return r.result(r.live(ctx))
}

// report counts a round, and logs it when it ended otherwise than the one before: an outage is one line, not one every round.
func (c *canary) report(ctx context.Context, result string, err error) {
	c.metrics.rounds.WithLabelValues(result).Inc()
	if result == roundSuccess {
		c.metrics.succeeded.SetToCurrentTime()
	}
	if result == c.last {
		return
	}
	c.last = result
	level := slog.LevelWarn
	if result == roundSuccess || result == roundUnchecked || result == roundSuspended {
		level = slog.LevelInfo
	}
	attributes := []slog.Attr{slog.String("result", result)}
	if err != nil {
		attributes = append(attributes, slog.Any("cause", err))
	}
	c.log.LogAttrs(ctx, level, "the canary's result changed", attributes...)
}

// organization returns the one of all canaries, and makes it when there is none yet.
func (c *canary) organization(ctx context.Context) (catalog.Organization, error) {
	ctx, cancel := context.WithTimeout(ctx, canaryStore)
	defer cancel()
	organization, err := c.store.ExternalOrganization(ctx, canaryOrganization)
	if !errors.Is(err, store.ErrNotFound) {
		return organization, err
	}
	externalID, plan, fallback := canaryOrganization, catalog.Enterprise, canaryTarget
	created, _, err := c.store.CreateOrganization(ctx, store.NewOrganization{
		Name: "Deeplink canary", ExternalID: &externalID, Plan: &plan, AppConfig: &catalog.AppConfig{FallbackURL: &fallback},
	})
	if errors.Is(err, store.ErrExternalIDTaken) {
		// Another control was faster.
		return c.store.ExternalOrganization(ctx, canaryOrganization)
	}
	return created.Organization, err
}

// sweep deletes the links of controls that were killed, at the start and every few minutes.
func (c *canary) sweep(ctx context.Context, organization catalog.Organization) error {
	if !c.swept.IsZero() && time.Since(c.swept) < canaryLeftover {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, canaryStore)
	defer cancel()
	deleted, _, err := c.store.DeleteOldLinks(ctx, organization.ID, canaryLeftover)
	if err != nil {
		return err
	}
	c.swept = time.Now()
	if deleted > 0 {
		c.log.Info("deleted the links of canaries that were killed", "count", deleted)
	}
	return nil
}
