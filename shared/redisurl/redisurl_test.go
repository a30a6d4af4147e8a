package redisurl

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"deeplink/shared/testkit"
)

func TestParseAcceptsAndRejectsURLs(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]struct {
		servers string
		read    bool
	}{
		"redis://:p@h:1/2":                       {"h:1", true},
		"rediss://h":                             {"h:6379", true},
		"redis+sentinel://a,b:2/1?master_name=m": {"a:26379 b:2", true},
		"rediss+sentinel://u:p%40x@a:1,b:2,[::1]:3?master_name=m&db=2": {"a:1 b:2 [::1]:3", true},
		"redis+sentinel://a:1?master_name=m&addr=b:2":                  {"a:1 b:2", true},
		"redis+cluster://:p@a,b:2":                                     {"a:6379 b:2", true},
		"rediss+cluster://a:1/0":                                       {"a:1", true},
		"redis+sentinel://a:1":                                         {},
		"redis+sentinel://a:1,?master_name=m":                          {},
		"redis+sentinel://a:1?master_name=m&replica_only=true":         {},
		"redis+sentinel://a:1?master_name=m&route_randomly=true":       {},
		"redis+cluster://a:1/1":                                        {},
		"redis+cluster://a:1?read_only=true":                           {},
		"redis+cluster://a:1?master_name=m":                            {},
		"redis+other://a:1":                                            {},
		"http+cluster://a:1":                                           {},
		"redis://a:1,b:2":                                              {},
		"":                                                             {},
	} {
		a, err := Parse(url)
		if (err == nil) != want.read {
			t.Errorf("%q: %v, expected it read: %v", url, err, want.read)
			continue
		}
		if err == nil && a.servers() != want.servers {
			t.Errorf("%q leads to %s, expected %s", url, a.servers(), want.servers)
		}
	}
}

func (a Address) servers() string {
	var all []string
	switch {
	case a.sentinel != nil:
		all = a.sentinel.SentinelAddrs
	case a.cluster != nil:
		all = a.cluster.Addrs
	default:
		all = []string{a.server.Addr}
	}
	text := ""
	for i, addr := range all {
		if i > 0 {
			text += " "
		}
		text += addr
	}
	return text
}

func open(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	a, err := Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	client := a.Open(Bounds{Dial: time.Second, IO: time.Second, Connections: 2})
	t.Cleanup(func() { client.Close() })
	return client
}

// untilIt repeats what may fail while Redis fails over.
func untilIt(t *testing.T, what string, works func(context.Context) error) {
	t.Helper()
	// A Sentinel that stood still for two seconds takes no part in a failover for thirty.
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := works(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func TestSentinelsLeadToThePrimaryAlsoWhenItIsAnother(t *testing.T) {
	t.Parallel()
	s := testkit.NewSentinels(t)
	client := open(t, s.URL())
	set := func(ctx context.Context) error { return client.Set(ctx, "key", "value", 0).Err() }
	untilIt(t, "a write", set)
	if err := errors.Join(s.Watch[0].Kill(), s.Servers[0].Kill()); err != nil {
		t.Fatal(err)
	}
	untilIt(t, "a write after the primary and a Sentinel died", set)
	if text, err := s.Servers[1].Tell(t.Context(), "GET key"); err != nil || text != "value" {
		t.Errorf("the new primary has %q, %v", text, err)
	}
}

func TestEachPrimaryOfAClusterIsWrittenTo(t *testing.T) {
	t.Parallel()
	c := testkit.NewRedisCluster(t)
	client := open(t, c.URL())
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		untilIt(t, "a write of "+key, func(ctx context.Context) error { return client.Set(ctx, key, "value", 0).Err() })
	}
	for _, server := range c.Servers {
		if keys, err := server.Tell(t.Context(), "DBSIZE"); err != nil || keys == "0" {
			t.Errorf("%s has %s keys, %v", server.Addr(), keys, err)
		}
	}
}
