package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// NewPurger returns one whose rounds are the test's to make.
func (w *testEnv) newPurger() *Purger {
	const retention = 400 * 24 * time.Hour
	return NewPurger(store.New(w.Open(w.DB.ControlURL), testLinkBase), retention, retention, NewMetrics(), slog.New(slog.DiscardHandler))
}

func TestPurgeDropsWhatWasFinishedTenMinutesAgo(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	purgers := []*Purger{w.newPurger(), w.newPurger()}
	organization := w.Organization(catalog.Growth)
	count := func() (changes, redemptions int) {
		err := w.Pool.QueryRow(t.Context(), `select (select count(*) from changes), (select count(*) from match_redemptions)`).Scan(&changes, &redemptions)
		if err != nil {
			t.Fatal(err)
		}
		return changes, redemptions
	}
	w.Exec(`insert into match_redemptions (nonce, link_id, matched_at) values ('12345678', gen_random_uuid(), now() - interval '26 hours'),
	                                                                          ('87654321', gen_random_uuid(), now() - interval '1 hour')`)
	w.Exec(`insert into audit_log (id, organization_id, at, actor_type, action, target_type, target_id, detail)
		select gen_random_uuid(), $1, now() - age, 'user', 'link.create', 'link', gen_random_uuid(), '{}' from unnest('{399 days, 401 days}'::interval[]) age`, organization.ID)
	old, _ := count()
	if old == 0 {
		t.Fatal("making an organization left no change")
	}

	start := time.Now()
	purge := func(after time.Duration) (left int) {
		t.Helper()
		for _, p := range purgers {
			if err := p.round(t.Context(), start.Add(after)); err != nil {
				t.Fatal(err)
			}
		}
		left, _ = count()
		return left
	}
	if left := purge(0); left != old {
		t.Errorf("at once %d of %d changes are left, expected all", left, old)
	}
	if _, _, err := w.Store.SetSuspended(t.Context(), testenv.Actor, organization.OrgKey, true); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{time.Minute, changeRetention - time.Second} {
		if left := purge(after); left != old+1 {
			t.Errorf("after %v %d of %d changes are left, expected all", after, left, old+1)
		}
	}
	// How many go at once depends on the oldest transaction that ran at the time, in whatever database of this server.
	if left := purge(changeRetention); left < 1 || left > old+1 {
		t.Errorf("after %v %d changes are left, expected the one that is younger, and perhaps more", changeRetention, left)
	}
	later := changeRetention
	await(t, "the last change to go", func() error {
		later += changeRetention
		if left := purge(later); left > 0 {
			return fmt.Errorf("%d changes are left", left)
		}
		return nil
	})
	var audited int
	if err := w.Pool.QueryRow(t.Context(), `select count(*) from audit_log`).Scan(&audited); err != nil || audited != 1 {
		t.Errorf("%d entries are left in the audit trail, %v; expected the one of 399 days", audited, err)
	}
	if _, redemptions := count(); redemptions != 1 {
		t.Errorf("%d redemptions are left, expected the one of the last hour", redemptions)
	}
	for _, p := range purgers {
		if n := len(p.snapshots); n > 2 {
			t.Errorf("%d snapshots are remembered, expected the newest old one and the last", n)
		}
	}
}

// exposed returns the metrics as Prometheus would scrape them.
func (m *Metrics) exposed() string {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.Collectors()...)
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	return recorder.Body.String()
}

func TestPurgeJobThatSpendsItsTimeLeavesTheOthersTheirs(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.newPurger()
	p.jobsSince = time.Now()
	steps := map[string]int{}
	endless := func(name string) func(context.Context) (store.Purged, error) {
		return func(context.Context) (store.Purged, error) { steps[name]++; return store.Purged{Rows: 3}, nil }
	}
	broken := errors.New("broken")
	p.jobs = []*purgeJob{
		{name: "changes", step: endless("changes")}, // no time for more than one step
		{name: "audit", budget: time.Minute, step: func(context.Context) (store.Purged, error) { steps["audit"]++; return store.Purged{}, broken }},
		{name: "events", budget: time.Minute, step: func(context.Context) (store.Purged, error) {
			steps["events"]++
			return store.Purged{Rows: 1, Done: steps["events"] >= 4}, nil
		}},
		{name: "devices", budget: time.Minute, rest: sweepRest, step: func(context.Context) (store.Purged, error) { steps["devices"]++; return store.Purged{Done: true}, nil }},
	}
	now := time.Now()
	for range 2 {
		if err := p.round(t.Context(), now); !errors.Is(err, broken) || !strings.Contains(err.Error(), "audit") {
			t.Errorf("%v, expected the error of the job that fails, and its name", err)
		}
	}
	if diff := cmp.Diff(map[string]int{"changes": 2, "audit": 2, "events": 5, "devices": 1}, steps); diff != "" {
		t.Errorf("steps (-expected +got):\n%s", diff)
	}
	exposed := p.metrics.exposed()
	for _, line := range []string{
		`deeplink_control_purged_rows_total{job="changes"} 6`, `deeplink_control_purges_unfinished_total{job="changes"} 2`,
		`deeplink_control_purges_unfinished_total{job="devices"} 0`,
	} {
		if !strings.Contains(exposed, line+"\n") {
			t.Errorf("%s is not among the metrics:\n%s", line, exposed)
		}
	}
	if err := p.round(t.Context(), now.Add(sweepRest)); !errors.Is(err, broken) || steps["devices"] != 2 {
		t.Errorf("%v and %d steps, expected that a job goes on after its rest", err, steps["devices"])
	}
}

func TestPurgeWithoutPostgresFailsAndGoesOnLater(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.newPurger()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.round(ended, time.Now()); err == nil {
		t.Error("a round without an answer of Postgres succeeded")
	}
	if err := p.round(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
}

// TestDailyNewCursorsFindRowsThatWereAddedBehindThem and keep what rests at rest.
func TestDailyNewCursorsFindRowsThatWereAddedBehindThem(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.newPurger()
	start := time.Now()
	old := func(age string) {
		w.Exec(`insert into event_ids (organization_id, id, received_at) values (gen_random_uuid(), gen_random_uuid(), now() - $1::interval)`, age)
	}
	left := func(after time.Duration) (n int) {
		t.Helper()
		if err := p.round(t.Context(), start.Add(after)); err != nil {
			t.Fatal(err)
		}
		if err := w.Pool.QueryRow(t.Context(), `select count(*) from event_ids`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	old("40 days")
	if n := left(0); n != 0 {
		t.Errorf("%d ids are left, expected none", n)
	}
	old("50 days")
	if n := left(time.Minute); n != 1 {
		t.Errorf("%d ids are left, expected that the purge does not go back", n)
	}
	rests := p.jobs[len(p.jobs)-1].notBefore
	if n := left(forgetCursors); n != 0 {
		t.Errorf("%d ids are left after a day, expected none", n)
	}
	if !rests.After(start) || p.jobs[len(p.jobs)-1].notBefore.Before(rests) {
		t.Errorf("%s rested until %v and now until %v", p.jobs[len(p.jobs)-1].name, rests, p.jobs[len(p.jobs)-1].notBefore)
	}
}
