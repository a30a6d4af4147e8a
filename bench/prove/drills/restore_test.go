package drills

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/testfleet"
	"deeplink/bench/prove/visitor"
	"deeplink/shared/testkit"
)

// Postgres gets the state of a restored volume: an earlier state, with no sign that it is a copy. Redis is stopped, so that edges learn of
// changes from Postgres only.
func TestProgramsAreCorrectAfterARestoreOfPostgres(t *testing.T) {
	testkit.Prove(t)
	f := testfleet.Start(t, 1, 2)
	tenant, keys, err := fleet.MakeLinks(t.Context(), f, 4)
	if err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(f.Postgres.Dir, "backup")
	if err := f.Postgres.Backup(t.Context(), backup, ""); err != nil {
		t.Fatal(err)
	}
	later, err := tenant.MakeLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	inactive := keys[0]
	if _, err := tenant.Call(t.Context(), "PATCH", "/links/"+inactive.ID, map[string]any{"isActive": false}, 200); err != nil {
		t.Fatal(err)
	}
	for i := range 200 { // so that transaction ids are reused, and not only those of the edges' polls
		if _, err := tenant.Call(t.Context(), "PATCH", "/links/"+keys[1].ID, map[string]any{"title": fmt.Sprint(i)}, 200); err != nil {
			t.Fatal(err)
		}
	}
	clicked := func(when string, k fleet.Link, want int) {
		t.Helper()
		for _, edge := range f.Edges {
			got, err := clickUntilAnswered(edge.Addr, k.Path)
			if err != nil || got != want {
				t.Errorf("%s: edge %s: %d, %v, expected %d", when, edge.Addr, got, err, want)
			}
		}
	}
	clicked("made after the backup", later, 302)
	clicked("made inactive after the backup", inactive, 410)
	if err := errors.Join(f.Redis.Kill(), f.Postgres.StopImmediate(), f.Postgres.SetBack(backup), f.Postgres.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	untilPolled(t, f, time.Now())
	clicked("made after the backup, then restored", later, 404)
	clicked("made inactive after the backup, then restored", inactive, 302)
	for _, k := range keys[1:] {
		clicked("of the backup", k, 302)
		deleted, err := callUntilAnswered(t.Context(), tenant, "DELETE", "/links/"+k.ID)
		if err != nil {
			t.Fatal(err)
		}
		if deleted.Propagation == "complete" {
			clicked("deleted after the restore", k, 404)
		}
	}
}

// callUntilAnswered retries until control reaches Postgres again.
func callUntilAnswered(ctx context.Context, by *fleet.Tenant, method, path string) (said fleet.Answer, err error) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		said, err = by.Call(ctx, method, path, nil, http.StatusOK)
		if err == nil || !strings.Contains(err.Error(), "503") || time.Now().After(end) {
			return said, err
		}
	}
}

// clickUntilAnswered retries while the response is 503 (Postgres unreachable): a 503 is not stale.
func clickUntilAnswered(addr, path string) (status int, err error) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		v := visitor.New(addr)
		status, err = v.Click(path)
		v.HangUp()
		if status != http.StatusServiceUnavailable || time.Now().After(end) {
			return status, err
		}
	}
}

// untilPolled waits until each edge has a lease that started after a time, and the controls are ready.
func untilPolled(t *testing.T, f *fleet.Fleet, since time.Time) {
	t.Helper()
	for _, control := range f.Controls {
		if err := control.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, edge := range f.Edges {
		for end := time.Now().Add(20 * time.Second); ; fleet.Pause(t.Context(), 10*time.Millisecond) {
			asked := time.Now()
			age, err := fleet.Metric(t.Context(), edge.Admin, "deeplink_edge_lease_age_seconds")
			if err == nil && age >= 0 && age < asked.Sub(since).Seconds() {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("edge %s has not polled: %v, %v", edge.Addr, age, err)
			}
		}
	}
}
