package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"deeplink/shared/testkit"
)

func TestSlotBelongsToOneProcess(t *testing.T) {
	t.Parallel()
	first := newFixture(t, nil)
	first.untilReady(t)
	second := &fixture{ended: make(chan error, 2)}
	second.start(t, first.database.URL, first.database.EdgeURL, testkit.NewRedis(t).URL(), nil)
	select {
	case err := <-second.ended:
		second.ended <- err
		if !errors.Is(err, ErrSlotTaken) {
			t.Errorf("the second process ended with %v, want ErrSlotTaken", err)
		}
	case <-time.After(bound):
		t.Fatal("two processes run on one slot")
	}
	first.untilReady(t)
	var incarnation string
	if err := first.owner.QueryRow(t.Context(), `select incarnation::text from edges`).Scan(&incarnation); err != nil || incarnation != first.incarnation {
		t.Errorf("the slot is that of %s, %v; expected the first process, %s", incarnation, err, first.incarnation)
	}
}

func TestNewProcessReplacesCrashedOneOnItsSlot(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	f.exec(t, `update edges set incarnation = gen_random_uuid()`) // another process took the slot: this one must end
	select {
	case err := <-f.ended:
		f.ended <- err
		if !errors.Is(err, ErrSlotTaken) {
			t.Errorf("ended with %v, want ErrSlotTaken", err)
		}
	case <-time.After(bound):
		t.Fatal("runs on although its slot was taken")
	}
	if f.lease.Load() != nil {
		t.Error("still holds a lease")
	}
	// The remaining row belongs to a process that no longer renews it.
	next := &fixture{ended: make(chan error, 1)}
	next.start(t, f.database.URL, f.database.EdgeURL, testkit.NewRedis(t).URL(), nil)
	next.untilReady(t)
	var incarnation string
	if err := next.owner.QueryRow(t.Context(), `select incarnation::text from edges`).Scan(&incarnation); err != nil || incarnation != next.incarnation {
		t.Errorf("the slot holds %s, %v; want the new process %s", incarnation, err, next.incarnation)
	}
}

func TestDeletedRowIsRecreated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	f.exec(t, `delete from edges`)
	until(t, "a new row", func() bool {
		var rows int
		if err := f.owner.QueryRow(context.Background(), `select count(*) from edges where incarnation = $1`, f.incarnation).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows == 1
	})
}

func TestRowHoldsReleaseOfEdge(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"v1.2.3", ""} {
		f := newFixture(t, func(o *Options) { o.Release = name })
		f.untilReady(t)
		var told *string
		if err := f.owner.QueryRow(t.Context(), `select release from edges`).Scan(&told); err != nil {
			t.Fatal(err)
		}
		if (told == nil) != (name == "") || told != nil && *told != name {
			t.Errorf("release %q: the row says %v", name, told)
		}
	}
}
