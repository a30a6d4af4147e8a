package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"deeplink/shared/feed"
	"deeplink/shared/testkit"
)

func TestStaleIfError(t *testing.T) {
	t.Parallel()
	const lease, stale = 600 * time.Millisecond, 4 * time.Second
	start := func(t *testing.T, stale time.Duration) (*fixture, *testkit.Postgres) {
		server := testkit.NewPostgres(t)
		f := &fixture{ended: make(chan error, 1)}
		f.start(t, server.Database.URL, server.Database.EdgeURL, testkit.NewRedis(t).URL(), func(o *Options) { o.Lease, o.StaleIfError = lease, stale })
		f.seed(t, sharedDomainID)
		f.nextLease(t) // by then the seeded changes have been applied, and no longer void entries
		f.untilCached(t, "abcd", "code")
		if err := server.StopImmediate(); err != nil {
			t.Fatal(err)
		}
		return f, server
	}
	t.Run("serves cached entries for the allowed time, then nothing, then continues", func(t *testing.T) {
		t.Parallel()
		f, server := start(t, stale)
		start := f.lease.Load().start
		until(t, "the end of the lease", func() bool { return f.Ready() != nil })
		f.mustGet(t, "abcd", "code", "v1")
		until(t, "the end of the time allowed", func() bool {
			value, err := f.get("abcd", "code")
			if err == nil && value == "v1" && time.Since(start) > lease+stale+100*time.Millisecond {
				t.Fatalf("still served %v after the last poll", time.Since(start))
			}
			return errors.Is(err, ErrUnavailable)
		})
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.untilReady(t)
		f.mustGet(t, "abcd", "code", "v1")
	})
	// After a restart of Postgres, an edge voids all entries: from then on clicks need the database that has only just returned.
	t.Run("no click is lost when Postgres is back", func(t *testing.T) {
		t.Parallel()
		f, server := start(t, time.Minute)
		until(t, "the end of the lease", func() bool { return f.Ready() != nil })
		started := make(chan error, 1)
		go func() { started <- server.Start(t.Context()) }()
		start := f.lease.Load().start
		for seen := 0; seen < 300; time.Sleep(time.Millisecond) {
			f.mustGet(t, "abcd", "code", "v1")
			if f.lease.Load().start != start {
				seen++
			}
		}
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a hint still voids the entry", func(t *testing.T) {
		t.Parallel()
		f, _ := start(t, stale)
		until(t, "the end of the lease", func() bool { return f.Ready() != nil })
		f.apply(string(feed.Change{ID: 1, XID: 1, Tags: []string{"k:abcd/code"}}.Encode()))
		if value, err := f.get("abcd", "code"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Get = %q, %v; want ErrUnavailable", value, err)
		}
	})
	t.Run("zero disables it", func(t *testing.T) {
		t.Parallel()
		f, _ := start(t, 0)
		until(t, "the end of the lease", func() bool { return f.Ready() != nil })
		if value, err := f.get("abcd", "code"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Get = %q, %v; want ErrUnavailable", value, err)
		}
	})
}

// The query for an association file can time out while the one for a link works, and vice versa.
func TestFilesAndLinksHaveSeparateCircuitBreakers(t *testing.T) {
	t.Parallel()
	for failing, working := range map[string]string{"file": "link", "link": "file"} {
		t.Run("loads of a "+failing+" time out", func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(o *Options) { o.IsFile = func(code string) bool { return code == "file" } })
			f.untilReady(t)
			f.loadFrom(func(_ context.Context, _, code string) (Result, error) {
				if code == failing {
					return Result{}, context.DeadlineExceeded
				}
				return Result{OrgKey: "abcd", Value: []byte("v")}, nil
			})
			if value, err := f.get("abcd", failing); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("Get = %q, %v; expected ErrUnavailable", value, err)
			}
			f.mustGet(t, "abcd", working, "v")
		})
	}
}

func TestFailedStatementIsReturnedAndNotServedStale(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.Lease = 500 * time.Millisecond })
	f.seed(t, sharedDomainID)
	f.untilReady(t)
	f.untilCached(t, "abcd", "code")
	f.exec(t, `revoke select on links from deeplink_edge`)
	f.exec(t, `update links set path = 'v2'`)
	f.nextLease(t)
	if value, err := f.get("abcd", "code"); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("Get = %q, %v; want the statement's error", value, err)
	}
	f.exec(t, `grant select on links to deeplink_edge`)
	f.mustGet(t, "abcd", "code", "v2")
}
