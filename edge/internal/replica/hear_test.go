package replica

import (
	"context"
	"fmt"
	"testing"
	"time"

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
	// An acknowledgement that Redis does not take in time is lost.
	acknowledged := make(chan feed.Ack, 1)
	go func() {
		for message := range acks.Channel() {
			if ack, err := feed.ParseAck(message.Payload); err == nil {
				acknowledged <- ack
				return
			}
		}
	}()
	tag := func(id int64) string { return fmt.Sprintf("k:abcd/code%d", id) }
	before := make(map[int64]uint64)
	var ack feed.Ack
	until(t, "an acknowledgement", func() bool {
		id := int64(7 + len(before))
		before[id] = f.stamps.counter(tag(id)).Load()
		if err := f.redis.Publish(t.Context(), feed.Hints, feed.Change{ID: id, XID: 99, Tags: []string{tag(id)}}.Encode()).Err(); err != nil {
			t.Fatal(err)
		}
		select {
		case ack = <-acknowledged:
			return true
		case <-time.After(time.Second):
			return false
		}
	})
	if stamp, sent := before[ack.ID]; !sent || f.stamps.counter(tag(ack.ID)).Load() == stamp {
		t.Errorf("acknowledged %+v before it was bumped", ack)
	}
	if want := (feed.Ack{ID: ack.ID, Slot: "slot", Incarnation: f.incarnation}); ack != want {
		t.Errorf("acknowledged %+v; want %+v", ack, want)
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
