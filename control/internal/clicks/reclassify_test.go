package clicks

import (
	"errors"
	"testing"
	"time"

	"deeplink/control/internal/store"
	"deeplink/shared/click"
)

func (w *testEnv) reclassify(since time.Time) (Reclassified, error) {
	return Reclassify(w.t.Context(), w.control, store.OperatorActor("test"), "", since, w.retention)
}

// TestReclassificationCorrectsEveryTable changes what the rules know of clicks, and compares all tables with a count over the clicks.
func TestReclassificationCorrectsEveryTable(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	random := seeded(t)
	_, links := w.organization("acme", 3)
	w.organization("beta", 1)
	from := daysAgo(2)
	l := w.log("a", from)
	for i := range 2 {
		l.ship(time.Time{}, someClicks(random, "acme", links, from.AddDate(0, 0, i), from.AddDate(0, 0, i+1), 300))
	}
	w.rollUp()
	w.check()
	if got, err := w.reclassify(from); err != nil || got.Changed != 0 || got.Clicks != 600 {
		t.Fatalf("without a change: %+v, %v", got, err)
	}
	// From the second day on, every second click was one of HEAD.
	second := from.AddDate(0, 0, 1)
	w.exec(w.owner, `update clicks set evidence = evidence | 1 where at >= $1 and ordinal % 2 = 0`, second)
	changed := int64(0)
	for i := range w.shipped {
		if c := &w.shipped[i]; i >= 300 && i%2 == 0 && !c.head {
			c.head = true
			changed++
		}
	}
	got, err := w.reclassify(second)
	if err != nil || got.Changed != changed || got.Clicks != 300 {
		t.Errorf("%+v, %v; expected %d of 300 changed", got, err, changed)
	}
	moved := int64(0)
	for _, m := range got.Moves {
		if moved += m.Clicks; m.To != click.Head.String() {
			t.Errorf("%+v, expected moves to head only", m)
		}
	}
	if moved != changed {
		t.Errorf("moves of %d clicks, expected %d", moved, changed)
	}
	w.check()
	if n := one[int](w, `select count(*) from audit_log where action = 'clicks.reclassify'`); n != 1 {
		t.Errorf("%d audit entries, expected one for the organization with a change", n)
	}
	if n := one[int](w, `select count(*) from click_organizations where org_key = 'acme'`); n != 1 {
		t.Error("the organization has no time of its reclassification")
	}
}

func TestSecondReclassificationIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.exec(w.owner, `select pg_advisory_lock(`+reclassifyLock+`)`)
	if _, err := w.reclassify(daysAgo(1)); !errors.Is(err, ErrRunning) {
		t.Errorf("%v, expected ErrRunning", err)
	}
	w.exec(w.owner, `select pg_advisory_unlock_all()`)
	if _, err := w.reclassify(daysAgo(1)); err != nil {
		t.Error(err)
	}
}

func TestForgottenLogNoLongerHoldsAsOfBack(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, links := w.organization("acme", 1)
	w.exec(w.owner, `update click_as_of set as_of = '2026-01-01Z'`)
	l := w.log("edge-1", daysAgo(1))
	actor := store.OperatorActor("test")
	if _, err := Forget(t.Context(), w.control, actor, "edge-1"); !errors.Is(err, ErrNotWaiting) {
		t.Errorf("a log that publishes: %v, expected ErrNotWaiting", err)
	}
	w.rollUp()
	if asOf := one[time.Time](w, `select as_of from click_as_of`); !asOf.Equal(daysAgo(1)) {
		t.Errorf("asOf %v, expected the through of the log", asOf)
	}
	w.exec(w.owner, `update click_logs set published_at = now() - interval '11 seconds'`)
	forgot, err := Forget(t.Context(), w.control, actor, "edge-1")
	if err != nil || len(forgot.Logs) != 1 || !forgot.Logs[0].Since.Equal(daysAgo(1)) {
		t.Errorf("%+v, %v", forgot, err)
	}
	w.rollUp()
	if asOf := one[time.Time](w, `select as_of from click_as_of`); time.Since(asOf) > time.Minute {
		t.Errorf("asOf %v, expected the clock", asOf)
	}
	// The edge returns all the same.
	l.ship(time.Time{}, []shippedClick{{orgKey: "acme", link: links[0], at: daysAgo(1).Add(time.Hour), outcome: click.Redirect}})
	w.shipped[0].late = true
	w.rollUp()
	w.check()
	if n := one[int](w, `select count(*) from audit_log where action = 'clicks.forget' and organization_id = '`+AllOrganizations+`'`); n != 1 {
		t.Errorf("%d audit entries, expected 1", n)
	}
}

func TestReclassificationLeavesDaysThatAreNotKept(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, links := w.organization("acme", 1)
	l := w.log("a", daysAgo(9))
	old := daysAgo(5)
	l.ship(time.Time{}, []shippedClick{{orgKey: "acme", link: links[0], at: old, outcome: click.Redirect, visitor: ptr(int64(1))}})
	w.rollUp()
	w.retention = 72 * time.Hour
	w.exec(w.owner, `update clicks set evidence = evidence | 1`)
	if got, err := w.reclassify(old); err != nil || got.Clicks != 0 {
		t.Errorf("%+v, %v; expected no click", got, err)
	}
	w.check()
}
