package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The database is set back to what a copied volume has: an earlier state, and nothing else that tells it apart. Redis is gone, so that
// nobody hears of a change but by what Postgres says.
func TestProgramsThatRunThroughARestoreAreRightAfterIt(t *testing.T) {
	f := start(t, 1, 2)
	tenant, keys, err := makeLinks(t.Context(), f, 4)
	if err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(f.Postgres.Dir, "backup")
	if err := f.Postgres.Backup(t.Context(), backup, ""); err != nil {
		t.Fatal(err)
	}
	later, err := tenant.makeLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	inactive := keys[0]
	if _, err := tenant.call(t.Context(), "PATCH", "/links/"+inactive.id, map[string]any{"isActive": false}, 200); err != nil {
		t.Fatal(err)
	}
	for i := range 200 { // so that numbers of transactions come again, and not those of the edges' polls alone
		if _, err := tenant.call(t.Context(), "PATCH", "/links/"+keys[1].id, map[string]any{"title": fmt.Sprint(i)}, 200); err != nil {
			t.Fatal(err)
		}
	}
	clicked := func(when string, k key, want int) {
		t.Helper()
		for _, edge := range f.edges {
			got, err := clickUntilAnswered(edge.Addr, k.path)
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
	f.untilPolled(t, time.Now())
	clicked("made after the backup, then restored", later, 404)
	clicked("made inactive after the backup, then restored", inactive, 302)
	for _, k := range keys[1:] {
		clicked("of the backup", k, 302)
		deleted, err := callUntilAnswered(t.Context(), tenant, "DELETE", "/links/"+k.id)
		if err != nil {
			t.Fatal(err)
		}
		if deleted.propagation == "complete" {
			clicked("deleted after the restore", k, 404)
		}
	}
}

// callUntilAnswered calls again while control has not found Postgres again.
func callUntilAnswered(ctx context.Context, by *tenant, method, path string) (said answer, err error) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		said, err = by.call(ctx, method, path, nil, http.StatusOK)
		if err == nil || !strings.Contains(err.Error(), "503") || time.Now().After(end) {
			return said, err
		}
	}
}

// clickUntilAnswered asks again while the answer is that Postgres is not reached, which is none from before.
func clickUntilAnswered(addr, path string) (status int, err error) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		v := newVisitor(addr)
		status, err = v.click(path)
		v.hangUp()
		if status != http.StatusServiceUnavailable || time.Now().After(end) {
			return status, err
		}
	}
}

// untilPolled waits until each edge has a lease from after a time, and the controls are ready.
func (f *fleet) untilPolled(t *testing.T, since time.Time) {
	t.Helper()
	for _, control := range f.controls {
		if err := control.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, edge := range f.edges {
		for end := time.Now().Add(20 * time.Second); ; pause(t.Context(), 10*time.Millisecond) {
			asked := time.Now()
			age, err := metric(t.Context(), edge.Admin, "deeplink_edge_lease_age_seconds")
			if err == nil && age >= 0 && age < asked.Sub(since).Seconds() {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("edge %s has not polled: %v, %v", edge.Addr, age, err)
			}
		}
	}
}
