package events

import (
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/testfleet"
	"deeplink/shared/testkit"
)

// The short form of `prove events`, with real processes.
func TestAcknowledgedEventsAreStoredOnce(t *testing.T) {
	testkit.Prove(t)
	f := testfleet.Start(t, 2, 0)
	owner, err := pgxpool.New(t.Context(), f.Owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(owner.Close)
	exec := func(sql string, arguments ...any) {
		t.Helper()
		if tag, err := owner.Exec(t.Context(), sql, arguments...); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %v, %v", sql, tag, err)
		}
	}
	t.Run("kill", func(t *testing.T) {
		k := killing{duration: 4 * time.Second, rate: 100, clients: 10, seed: 1, least: 500 * time.Millisecond, most: time.Second}
		r, err := k.run(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		show(t, r.print)
		demand(t, r.findings())
		if r.kills == 0 || len(r.ledger.acknowledged) < 50 {
			t.Fatalf("%d kills, %d events acknowledged: the run proves nothing", r.kills, len(r.ledger.acknowledged))
		}
		// The checker must detect a lost event and a duplicate.
		var told []eventKey
		for k := range r.ledger.acknowledged {
			told = append(told, k)
		}
		exec(`delete from events where id = $1`, [16]byte(told[0].id))
		exec(`insert into events (organization_id, id, device_id, name, occurred_at, received_at)
			select organization_id, id, device_id, name, occurred_at, received_at + interval '1 ms' from events where id = $1`, [16]byte(told[1].id))
		if err := r.look(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		unseen(t, r.findings(), "acknowledged and not in the table", "acknowledged and not in the export", "more than once in the table", "more than once in the export")
	})
	t.Run("fill", func(t *testing.T) {
		const events = 3000
		shown := 0
		r, err := filling{events: events, clients: 4, repeat: 0.5, seed: 1}.run(t.Context(), f, func(int) {}, func(n int) { shown = n })
		if err != nil {
			t.Fatal(err)
		}
		show(t, r.print)
		demand(t, r.findings())
		if r.repeated == 0 || len(r.paces) != stretches || shown != events || r.tenth.Lines == 0 || r.whole.Peak == 0 {
			t.Errorf("%d duplicates reported, %d tenths, progress %d, exports %+v and %+v: the run proves nothing", r.repeated, len(r.paces), shown, r.tenth, r.whole)
		}
		exec(`delete from events where id = (select e.id from events e join organizations o on o.id = e.organization_id where o.org_key = $1 limit 1)`, r.orgKey)
		if err := r.look(t.Context(), f, owner, time.Now(), func(int) {}); err != nil {
			t.Fatal(err)
		}
		unseen(t, r.findings(), "events in the table", "events in the table, each once", "lines of the export", "ids of the export are those acknowledged")
	})
	t.Run("keys", func(t *testing.T) {
		o, err := fleet.NewOrganization(t.Context(), f.OperatorCommand)
		if err != nil {
			t.Fatal(err)
		}
		keys := newKeyring(f, o)
		keys.left = 1
		random := rand.New(rand.NewPCG(1, 0))
		for range 2 {
			key, err := keys.take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if a := sendBatch(t.Context(), f.Controls[0].Addr, key, newBatch(random, "phone", "", 1)); a.status != http.StatusOK {
				t.Errorf("key %d: %+v, expected 200", keys.made, a)
			}
		}
		// By now the first key is replaced or revoked.
		if a := sendBatch(t.Context(), f.Controls[0].Addr, o.ClientKey, newBatch(random, "phone", "", 1)); a.status != http.StatusUnauthorized || keys.made != 2 {
			t.Errorf("%d keys, the first one: %+v, expected 2 and 401", keys.made, a)
		}
	})
}

// show logs what a command would print.
func show(t *testing.T, print func(io.Writer)) {
	t.Helper()
	var text strings.Builder
	print(&text)
	t.Log(text.String())
}

// demand fails for every exceeded bound that a busy machine cannot exceed.
func demand(t *testing.T, findings []figures.Finding) {
	t.Helper()
	for _, f := range findings {
		if !f.Kept && !f.Timed {
			t.Errorf("%s: %s, expected %s", f.What, f.Figure, f.Bound)
		}
	}
}

// unseen fails for each of the findings that counts as kept.
func unseen(t *testing.T, findings []figures.Finding, wrong ...string) {
	t.Helper()
	for _, f := range findings {
		if f.Kept && slices.Contains(wrong, f.What) {
			t.Errorf("the table was corrupted, but %s: %s passes", f.What, f.Figure)
		}
	}
}
