package testenv

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"deeplink/control/internal/relay"
	"deeplink/shared/bus"
	"deeplink/shared/feed"
)

const deafIncarnation = "00000000-0000-4000-8000-000000000001"

// DeafEdge registers an edge that never polls and never acknowledges a change.
func (w *Env) DeafEdge(lease, hold time.Duration) {
	w.T.Helper()
	w.Exec(`insert into edges (slot, incarnation, lease_ms, hold_ms, applied) values ('deaf', $1, $2, $3, pg_current_snapshot())`,
		deafIncarnation, lease.Milliseconds(), hold.Milliseconds())
}

// AcknowledgeHints acknowledges every hint as the deaf edge would, until the test ends, and returns the changes.
func (w *Env) AcknowledgeHints() <-chan feed.Change {
	w.T.Helper()
	client, err := bus.Open(w.Redis.URL())
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { client.Close() })
	sub := client.Subscribe(context.Background(), feed.Hints)
	if _, err := sub.Receive(context.Background()); err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { sub.Close() })
	heard := make(chan feed.Change, 100)
	go acknowledge(client, sub, heard)
	return heard
}

func acknowledge(client redis.UniversalClient, sub *redis.PubSub, heard chan<- feed.Change) {
	for {
		message, err := sub.ReceiveMessage(context.Background())
		if err != nil {
			return // the test is over
		}
		change, err := feed.ParseChange(message.Payload)
		if err != nil {
			continue
		}
		client.Publish(context.Background(), feed.Acks, feed.Ack{ID: change.ID, Slot: "deaf", Incarnation: deafIncarnation}.Encode())
		heard <- change
	}
}

// RunRelay runs a relay over pool until the test ends.
func (w *Env) RunRelay(pool *pgxpool.Pool) *relay.Relay {
	w.T.Helper()
	hints, err := bus.Open(w.Redis.URL())
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { hints.Close() })
	r := relay.New(pool, hints, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	w.T.Cleanup(func() { cancel(); <-ended })
	return r
}
