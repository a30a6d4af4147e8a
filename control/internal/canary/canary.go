package canary

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"deeplink/control/internal/edgeclient"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/settings"
)

const (
	// MinInterval and MaxInterval bound CONTROL_CANARY, which may also be 0.
	MinInterval, MaxInterval = time.Second, time.Hour
	// startWithin is the time after the start within which the first round starts. It spreads controls that start together.
	startWithin = 2 * time.Second
	// roundTimeout bounds a round, and storeTimeout each of its calls to the store.
	roundTimeout, storeTimeout = time.Minute, 5 * time.Second
	// waitTimeout bounds the wait for a change. A call of the API waits no longer.
	waitTimeout = 10 * time.Second
	// cleanupTimeout bounds the removal of the link after an interrupted round. The end of the process waits for it.
	cleanupTimeout = time.Second
	// leftoverAge is the age at which a link must be from a control that was killed. No round takes that long.
	leftoverAge = 5 * time.Minute

	// targetPrefix is the start of every destination. Such a host cannot exist (RFC 6761, 6.4).
	targetPrefix = "https://deeplink-canary.invalid/"
)

// The results of a round, as labels of the metrics.
const (
	roundSuccess   = "success"   // every change was complete, and every requested edge served it
	roundPending   = "pending"   // a change was not complete; nothing else failed
	roundUnchecked = "unchecked" // no edge has an address
	roundSuspended = "suspended" // an operator suspended the organization
	roundFailed    = "failed"    // Postgres or an edge failed, or an edge returned what is no state of the link
	roundViolation = "violation" // an edge served a version from before a complete change
)

// actor makes the canary's changes, all in its own organization. The audit trail does not record them, because there are too many.
var actor = store.SystemActor("canary")

// Canary checks in production that no edge serves an old version after a change is complete. It creates, edits and deletes a link as the API does,
// and sends a request to every edge after each change. It runs in the background and never blocks requests. Every control runs one.
type Canary struct {
	store   *store.Store
	relay   *relay.Relay
	edges   *edgeclient.Client
	every   time.Duration
	log     *slog.Logger
	metrics *metrics

	lastSweep  time.Time // when left-over links were last looked for
	lastResult string    // result of the last round
}

// New returns a canary that pauses for every between two rounds. It needs one connection of the store's at a time.
func New(s *store.Store, r *relay.Relay, base settings.LinkBase, every time.Duration, log *slog.Logger) *Canary {
	return &Canary{store: s, relay: r, edges: edgeclient.New(base), every: every, log: log, metrics: newMetrics()}
}

// Collectors returns the metrics, which a registry takes once.
func (c *Canary) Collectors() []prometheus.Collector { return c.metrics.collectors() }

// Run makes rounds until ctx ends. The relay must run until then.
func (c *Canary) Run(ctx context.Context) error {
	pause := rand.N(min(c.every, startWithin))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		result, err := c.round(ctx)
		if ctx.Err() != nil {
			return nil // an interrupted round has no result
		}
		c.report(ctx, result, err)
		pause = c.every
	}
}

// round makes one round and returns its result. err is the reason of a failure.
func (c *Canary) round(ctx context.Context) (result string, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	organization, err := c.organization(ctx)
	if err != nil {
		return roundFailed, err
	}
	if organization.Suspended {
		return roundSuspended, nil
	}
	if err := c.deleteLeftovers(ctx, organization); err != nil {
		return roundFailed, err
	}
	r := newRound(c, organization)
	return r.result(r.live(ctx))
}

// report counts a round, and logs its result when it differs from the one before, so that an outage is one line and not one per round.
func (c *Canary) report(ctx context.Context, result string, err error) {
	c.metrics.rounds.WithLabelValues(result).Inc()
	if result == roundSuccess {
		c.metrics.succeeded.SetToCurrentTime()
	}
	if result == c.lastResult {
		return
	}
	c.lastResult = result
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

// organization returns the organization of all canaries, and creates it when it does not exist.
func (c *Canary) organization(ctx context.Context) (catalog.Organization, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	organization, err := c.store.ExternalOrganization(ctx, store.CanaryOrganization)
	if !errors.Is(err, store.ErrNotFound) {
		return organization, err
	}
	externalID, plan, fallback := store.CanaryOrganization, catalog.Enterprise, targetPrefix
	created, _, err := c.store.CreateOrganization(ctx, actor, store.NewOrganization{
		Name: "Deeplink canary", ExternalID: &externalID, Plan: &plan, AppConfig: &catalog.AppConfig{FallbackURL: &fallback},
	})
	if errors.Is(err, store.ErrExternalIDTaken) {
		// Another control created it first.
		return c.store.ExternalOrganization(ctx, store.CanaryOrganization)
	}
	return created.Organization, err
}

// deleteLeftovers deletes the links of controls that were killed, at the start and then every leftoverAge.
func (c *Canary) deleteLeftovers(ctx context.Context, organization catalog.Organization) error {
	if !c.lastSweep.IsZero() && time.Since(c.lastSweep) < leftoverAge {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	deleted, _, err := c.store.DeleteOldLinks(ctx, actor, organization.ID, leftoverAge)
	if err != nil {
		return err
	}
	c.lastSweep = time.Now()
	if deleted > 0 {
		c.log.Info("deleted the links of canaries that were killed", "count", deleted)
	}
	return nil
}
