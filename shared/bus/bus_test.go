package bus

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"deeplink/shared/testkit"
)

// listener hears a channel until its test ends.
type listener struct {
	mu    sync.Mutex
	heard map[string]bool
}

func listen(t *testing.T, url string) *listener {
	t.Helper()
	l := &listener{heard: make(map[string]bool)}
	client := open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	var hearing sync.WaitGroup
	hearing.Go(func() {
		Subscribe(ctx, client, "channel", func(payload string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.heard[payload] = true
		}, func(error) {})
	})
	t.Cleanup(func() { cancel(); hearing.Wait() })
	return l
}

func open(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	client, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// hears sends a message until it is heard.
func (l *listener) hears(t *testing.T, from redis.UniversalClient, message string) {
	t.Helper()
	// A Sentinel that stood still for two seconds takes no part in a failover for thirty.
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := from.Publish(t.Context(), "channel", message).Err()
		l.mu.Lock()
		heard := l.heard[message]
		l.mu.Unlock()
		if heard {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q was not heard; the last try to send it: %v", message, err)
		}
	}
}

func TestMain(m *testing.M) {
	Silence()
	m.Run()
}

func TestSubscriptionReceivesHintsAfterSentinelFailover(t *testing.T) {
	t.Parallel()
	s := testkit.NewSentinels(t)
	l, sender := listen(t, s.URL()), open(t, s.URL())
	l.hears(t, sender, "before")
	if err := errors.Join(s.Watch[0].Kill(), s.Servers[0].Kill()); err != nil {
		t.Fatal(err)
	}
	l.hears(t, sender, "after")
}

func TestSubscriptionReceivesHintsFromEveryNodeOfACluster(t *testing.T) {
	t.Parallel()
	c := testkit.NewRedisCluster(t)
	l := listen(t, c.URL())
	l.hears(t, open(t, c.URL()), "from the channel's node")
	for _, server := range c.Servers {
		l.hears(t, open(t, server.URL()), "from "+server.Addr())
	}
}
