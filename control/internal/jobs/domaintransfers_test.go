package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// DomainTransfers returns a job that looks up hosts at the name server, with a relay of its own, whose rounds are the test's to make.
func (w *testEnv) transferJob(resolver dnsverify.Resolver) (*DomainTransfers, *logBuffer) {
	w.T.Helper()
	pool, log := w.Open(w.DB.ControlURL), new(logBuffer)
	return NewDomainTransfers(store.New(pool, testLinkBase), w.RunRelay(pool), resolver, NewMetrics(), slog.New(slog.NewJSONHandler(log, nil))), log
}

// hostResolver finds the same values for every host, and counts how many lookups are under way.
type hostResolver struct {
	values      map[string][]string
	asked, most atomic.Int64
	now         atomic.Int64
	release     chan struct{}
}

func (r *hostResolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	now := r.now.Add(1)
	defer r.now.Add(-1)
	for most := r.most.Load(); now > most && !r.most.CompareAndSwap(most, now); most = r.most.Load() {
	}
	r.asked.Add(1)
	select {
	case <-r.release:
		return r.values[name], nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestJobsOfTwoControlsMoveEachHostOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	owner, claimant := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	const hosts = 70 // more than two batches
	resolver := &hostResolver{values: make(map[string][]string), release: make(chan struct{})}
	for i := range hosts {
		host := fmt.Sprintf("host%d.acme.example", i)
		if _, _, _, err := w.Store.AddDomain(t.Context(), testenv.Actor, owner.ID, store.Unconditional, host, true); err != nil {
			t.Fatal(err)
		}
		claimed, token, _, err := w.Store.AddDomain(t.Context(), testenv.Actor, claimant.ID, store.Unconditional, host, false)
		if err != nil {
			t.Fatal(err)
		}
		resolver.values["_deeplink."+host+"."] = []string{"unrelated", dnsverify.ValuePrefix + token}
		own, err := w.Store.Domain(t.Context(), claimant.ID, claimed.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Store.VerifyDomain(t.Context(), testenv.Actor, claimant.ID, store.Unconditional, claimed.ID, store.Proofs{Tokens: []string{token}, At: own.ReadAt}); err != nil {
			t.Fatal(err)
		}
	}
	w.CompleteTransfersIn(-time.Second)
	w.Exec(`update domain_transfers set check_at = now()`)
	var group errgroup.Group
	var logs []*logBuffer
	for range 2 {
		job, log := w.transferJob(resolver)
		logs = append(logs, log)
		group.Go(func() error { return job.round(t.Context(), time.Now().Add(time.Hour)) })
	}
	await(t, "both jobs looking up as many hosts as they may at once", func() error {
		if n := resolver.asked.Load(); n < 2*transferLookups {
			return fmt.Errorf("%d lookups", n)
		}
		return nil
	})
	close(resolver.release)
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	moves := strings.Count(logs[0].String(), "moved to") + strings.Count(logs[1].String(), "moved to")
	var verified int
	if err := w.Pool.QueryRow(t.Context(), `select count(*) from domains where organization_id = $1 and host is not null and status = 'verified'`, claimant.ID).Scan(&verified); err != nil {
		t.Fatal(err)
	}
	if moves != hosts || verified != hosts || resolver.asked.Load() != hosts || resolver.most.Load() > 2*transferLookups {
		t.Errorf("%d moves, %d hosts moved, %d lookups, %d of them at once; expected %d, each looked up once, %d at once at most",
			moves, verified, resolver.asked.Load(), resolver.most.Load(), hosts, 2*transferLookups)
	}
}
