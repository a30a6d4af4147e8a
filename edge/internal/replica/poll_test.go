package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/feed"
	"deeplink/shared/testkit"
)

func TestEveryKindOfChangeIsAppliedByThePoll(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, domain, domainID, statement, want string }{
		{"edit", "abcd", sharedDomainID, `update links set path = 'v2'`, "v2"},
		{"delete", "abcd", sharedDomainID, `delete from links`, ""},
		{"rename", "abcd", sharedDomainID, `update links set short_code = 'other'`, ""},
		{"moved to another domain", "abcd", sharedDomainID, `update links set domain_id = '` + customDomainID + `'`, ""},
		{"edit on a custom domain", "go.example.com", customDomainID, `update links set path = 'v2'`, "v2"},
		{"custom domain no longer verified", "go.example.com", customDomainID, `update domains set status = 'pending' where host is not null`, ""},
		{"truncate", "abcd", sharedDomainID, `truncate links`, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.seed(t, test.domainID)
			f.untilReady(t)
			f.mustGet(t, test.domain, "code", "v1")
			f.untilCached(t, test.domain, "code")
			f.exec(t, test.statement)
			f.nextLease(t)
			f.mustGet(t, test.domain, "code", test.want)
		})
	}
}

func TestChangeOfOrganizationVoidsLinksOnItsCustomDomain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.seed(t, customDomainID)
	f.untilReady(t)
	f.untilCached(t, "go.example.com", "code")
	before := f.counts.loads.Load()
	f.exec(t, `update organizations set suspended = true`)
	f.nextLease(t)
	f.mustGet(t, "go.example.com", "code", "v1")
	if f.counts.loads.Load() == before {
		t.Error("served the state before the suspension: no load after it")
	}
}

// The window must not miss a transaction, in whatever order transaction ids are assigned and transactions commit.
func TestPollMissesNoTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	const writers, rounds = 8, 25
	var group sync.WaitGroup
	for w := range writers {
		conn, err := pgx.Connect(t.Context(), f.database.URL)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			defer conn.Close(context.Background())
			for i := range rounds {
				tag := fmt.Sprintf("k:abcd/%d-%d", w, i)
				before := f.stamps.counter(tag).Load()
				tx, err := conn.Begin(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := tx.Exec(context.Background(), `insert into changes (tags) values ($1)`, []string{tag}); err != nil {
					t.Error(err)
				}
				time.Sleep(rand.N(100 * time.Millisecond)) // transactions overlap, and commit in another order than they start
				if err := tx.Commit(context.Background()); err != nil {
					t.Error(err)
				}
				committed := time.Now()
				for end := committed.Add(bound); !f.lease.Load().start.After(committed); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Error("no lease")
						return
					}
				}
				if f.stamps.counter(tag).Load() == before {
					t.Errorf("a lease after the commit of %s, which was not bumped", tag)
				}
			}
		})
	}
	group.Wait()
}

func TestUntrustedWindowVoidsAllEntries(t *testing.T) {
	t.Parallel()
	snapshot, err := feed.ParseSnapshot("5:7:6")
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := feed.ParseSnapshot("5:6:")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	at := func(history string, snapshot feed.Snapshot, start time.Time) window {
		return window{feed.Point{History: history, Snapshot: snapshot}, start}
	}
	good := at("1", snapshot, now)
	tests := []struct {
		name     string
		old, now window
		want     bool
	}{
		{"the poll before", good, good, true},
		{"no poll before", at("", feed.Snapshot{}, time.Time{}), good, false},
		{"another server, timeline or start", at("2", snapshot, now), good, false},
		{"transaction numbers went back", good, at("1", earlier, now), false},
		{"older than half of what control keeps", at("1", snapshot, now.Add(-windowAge)), good, false},
	}
	for _, test := range tests {
		if got := test.old.trusts(test.now); got != test.want {
			t.Errorf("%s: trusts = %v, want %v", test.name, got, test.want)
		}
	}
}

// A host that is switched off or cut off does not even refuse connections.
func TestSilentFirstHostLeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts the connection, no server responds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	database := testkit.NewDatabase(t)
	hosts, err := url.Parse(database.EdgeURL)
	if err != nil {
		t.Fatal(err)
	}
	hosts.Host = silent.Addr().String() + "," + hosts.Host
	f := &fixture{database: database, ended: make(chan error, 1)}
	f.start(t, database.URL, hosts.String(), testkit.NewRedis(t).URL(), nil)
	f.seed(t, sharedDomainID)
	f.untilReady(t)
	until(t, "a result from the pool of the loads", func() bool {
		got, err := f.get("abcd", "code")
		return err == nil && got == "v1"
	})
}
