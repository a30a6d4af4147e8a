package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

const (
	// transferEvery is how often the job looks for contested hosts that are due for a check.
	transferEvery = time.Minute
	// transferBatch is how many hosts the job takes at once, and transferLookups how many of them it looks up at the same time. A batch of
	// hosts whose name servers do not respond takes 20 s.
	transferBatch   = 32
	transferLookups = 8
)

// transferActor makes the changes of the job.
var transferActor = store.ServiceActor("domain transfers")

// DomainTransfers looks up the TXT records of contested hosts, and then ends their transfers or moves them to their new owners. Every control runs
// one, and one of them takes each host that is due.
type DomainTransfers struct {
	store    *store.Store
	relay    *relay.Relay
	resolver dnsverify.Resolver
	metrics  *Metrics
	log      *slog.Logger
}

// NewDomainTransfers returns a job that looks up hosts with resolver.
func NewDomainTransfers(s *store.Store, r *relay.Relay, resolver dnsverify.Resolver, metrics *Metrics, log *slog.Logger) *DomainTransfers {
	return &DomainTransfers{store: s, relay: r, resolver: resolver, metrics: metrics, log: log}
}

// Run makes a round every minute until ctx ends. The relay must run until then.
func (j *DomainTransfers) Run(ctx context.Context) error {
	// A random start spreads controls that start together.
	pause := rand.N(transferEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if err := j.round(ctx, time.Now().Add(transferEvery)); err != nil && ctx.Err() == nil {
			j.log.Warn("could not check some custom domains for a change of owner; the next check repeats them", "error", err)
		}
		pause = transferEvery
	}
}

// round checks the hosts that are due, batch by batch. It starts no batch after end.
func (j *DomainTransfers) round(ctx context.Context, end time.Time) error {
	var errs []error
	for time.Now().Before(end) && ctx.Err() == nil {
		hosts, err := j.due(ctx)
		if err != nil {
			j.metrics.transferChecks.WithLabelValues(checkFailed).Inc()
			return errors.Join(append(errs, err)...)
		}
		if len(hosts) == 0 {
			break
		}
		var mu sync.Mutex
		var group errgroup.Group
		group.SetLimit(transferLookups)
		for _, host := range hosts {
			group.Go(func() error {
				result, err := j.check(ctx, host)
				if ctx.Err() != nil {
					return nil // an interrupted check has no result
				}
				j.metrics.transferChecks.WithLabelValues(result).Inc()
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
				return nil
			})
		}
		_ = group.Wait()
	}
	return errors.Join(errs...)
}

func (j *DomainTransfers) due(ctx context.Context) ([]store.HostCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return j.store.DueHosts(ctx, transferBatch)
}

// The results of checks, as labels of the metric.
const (
	checkDone       = "success"
	checkUnanswered = "unanswered" // DNS failed
	checkFailed     = "error"      // Postgres failed
)

// Check looks up a host at once, whether or not it is due.
func (j *DomainTransfers) Check(ctx context.Context, host store.HostCheck) error {
	_, err := j.check(ctx, host)
	return err
}

// check looks up a host and settles which organization has it. A DNS failure changes nothing, because it does not prove that a record is gone.
func (j *DomainTransfers) check(ctx context.Context, host store.HostCheck) (result string, err error) {
	values, err := dnsverify.LookupTXT(ctx, j.resolver, catalog.VerificationLabel+host.Host)
	if err != nil {
		return checkUnanswered, fmt.Errorf("look up the TXT record of %s: %w", host.Host, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	moved, change, err := j.store.SettleHost(ctx, transferActor, host.Host, store.Proofs{Tokens: dnsverify.Tokens(values), At: host.At})
	if err != nil {
		return checkFailed, err
	}
	if moved {
		j.log.Info("a custom domain moved to the organization that proved it", "host", host.Host, "propagation", j.relay.Await(ctx, change))
	}
	return checkDone, nil
}
