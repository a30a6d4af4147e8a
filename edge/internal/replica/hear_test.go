package replica

import (
	"context"
	"testing"

	"deeplink/shared/feed"
	"deeplink/shared/testdb"
	"deeplink/shared/testredis"
)

func TestHintIsBumpedAndThenAcknowledged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	acks := f.redis.Subscribe(t.Context(), feed.Acks)
	defer acks.Close()
	if _, err := acks.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "a subscriber of hints", func() bool { return f.redis.PubSubNumSub(t.Context(), feed.Hints).Val()[feed.Hints] == 1 })
	change := feed.Change{ID: 7, XID: 99, Tags: []string{"k:abcd/code"}}
	before := f.stamps.counter("k:abcd/code").Load()
	if err := f.redis.Publish(t.Context(), feed.Hints, change.Encode()).Err(); err != nil {
		t.Fatal(err)
	}
	message, err := acks.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.stamps.counter("k:abcd/code").Load() == before {
		t.Error("acknowledged before it was bumped")
	}
	ack, err := feed.ParseAck(message.Payload)
	if want := (feed.Ack{ID: 7, Slot: "slot", Incarnation: f.incarnation}); err != nil || ack != want {
		t.Errorf("acknowledged %+v, %v; want %+v", ack, err, want)
	}
}

func TestSubscriptionComesBackAfterRedisRestarts(t *testing.T) {
	t.Parallel()
	server := testredis.New(t)
	database := testdb.New(t)
	f := &fixture{ended: make(chan error, 1)}
	f.start(t, database.URL, database.EdgeURL, server.URL(), nil)
	f.untilReady(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "a hint after the restart", func() bool {
		f.redis.Publish(context.Background(), feed.Hints, feed.Change{ID: 1, XID: 1, Tags: []string{"o:abcd"}}.Encode())
		return f.counts.hints.Load() > 0
	})
}
