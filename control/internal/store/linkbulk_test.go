package store_test

import (
	"crypto/sha256"
	"testing"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// TestReplayedBulkWriteWaitsLikeTheFirst compares what the edges must apply before the two responses to a key. With the id of the change, a
// repeated request waits for acknowledgements and not for polls.
func TestReplayedBulkWriteWaitsLikeTheFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	old := f.create(org, `{"path":"/a"}`)
	write := func(key string, operations ...store.Operation) store.Written {
		t.Helper()
		bulk := make([]store.BulkOperation, len(operations))
		for i, o := range operations {
			bulk[i].Operation = o
		}
		w := store.Write{OrganizationID: org.ID, Require: store.Unconditional, Key: &store.IdempotencyKey{Scope: sha256.Sum256([]byte(key))}}
		out, _, err := f.store.WriteLinks(t.Context(), testActor, w, bulk, false, func([]store.BulkOutcome) (store.Response, error) {
			return store.Response{Status: 200, Body: []byte(`{}`)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	create := store.Operation{Kind: store.CreateLink, Link: read(t, `{"path":"/b"}`)}
	nothing := store.Operation{Kind: store.UpdateLink, Target: store.LinkRef{ID: old.ID}, Patch: readPatch(t, `{"path":"/a"}`)}
	for name, operations := range map[string][]store.Operation{"creates": {create, create}, "a create, and a link that stays as it is": {create, nothing}} {
		first, again := write(name, operations...), write(name, operations...)
		if first.Replayed || !again.Replayed || first.Change.XID == 0 || first.Change.XID != again.Change.XID {
			t.Fatalf("%s: %+v and %+v, expected a write and its replay", name, first, again)
		}
		// Only a snapshot shows that an edge has applied several transactions.
		if bySnapshot := len(first.Also) > 0; (again.Change.ID == 0) != bySnapshot || !bySnapshot && again.Change.ID != first.Change.ID {
			t.Errorf("%s: the replay waits for %+v, the first request for %+v and %v", name, again.Change, first.Change, first.Also)
		}
	}
}
