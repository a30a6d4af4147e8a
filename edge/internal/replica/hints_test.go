package replica

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"deeplink/shared/feed"
	"deeplink/shared/testkit"
)

func TestHintIsAcknowledgedAfterItsTagsAreBumped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	acks := f.redis.Subscribe(t.Context(), feed.Acks)
	defer acks.Close()
	if _, err := acks.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "a subscriber of hints", func() bool { return f.redis.PubSubNumSub(t.Context(), feed.Hints).Val()[feed.Hints] == 1 })
	// An acknowledgement that Redis does not accept in time is lost, and another hint is needed.
	id := int64(6)
	until(t, "an acknowledgement", func() bool {
		id++
		tag := fmt.Sprintf("k:abcd/code%d", id)
		before := f.stamps.counter(tag).Load()
		if err := f.redis.Publish(t.Context(), feed.Hints, feed.Change{ID: id, XID: 99, Tags: []string{tag}}.Encode()).Err(); err != nil {
			t.Fatal(err)
		}
		received, _ := acks.ReceiveTimeout(t.Context(), time.Second)
		message, acknowledged := received.(*redis.Message)
		if !acknowledged {
			return false
		}
		if f.stamps.counter(tag).Load() == before {
			t.Error("acknowledged before it was bumped")
		}
		ack, err := feed.ParseAck(message.Payload)
		if want := (feed.Ack{ID: id, Slot: "slot", Incarnation: f.incarnation}); err != nil || ack != want {
			t.Errorf("acknowledged %+v, %v; want %+v", ack, err, want)
		}
		return true
	})
}

func TestSubscriptionComesBackAfterRedisRestarts(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t)
	database := testkit.NewDatabase(t)
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
