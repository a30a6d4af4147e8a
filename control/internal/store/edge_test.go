package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
)

func TestEdgesAreListedWithAndWithoutAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if all, err := f.store.Edges(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("Edges of none: %+v, %v", all, err)
	}
	f.exec(`insert into edges (slot, incarnation, lease_ms, hold_ms, address) values
		('b', gen_random_uuid(), 1, 1, 'edge-b.internal:8080'), ('a', gen_random_uuid(), 1, 1, null)`)
	all, err := f.store.Edges(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]store.Edge{{Slot: "a"}, {Slot: "b", Address: "edge-b.internal:8080"}}, all); diff != "" {
		t.Errorf("-expected +got:\n%s", diff)
	}
}
