package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"deeplink/control/internal/relay"
	"deeplink/shared/bus"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

const deadIncarnation = "00000000-0000-4000-8000-000000000001"

// deafEdge registers an edge that never polls and acknowledges nothing.
func (w *world) deafEdge(lease, hold time.Duration) {
	w.t.Helper()
	w.exec(`insert into edges (slot, incarnation, lease_ms, hold_ms, applied) values ('deaf', $1, $2, $3, pg_current_snapshot())`,
		deadIncarnation, lease.Milliseconds(), hold.Milliseconds())
}

// hear acknowledges every hint in the name of the deaf edge, until the test ends, and returns them.
func (w *world) hear() <-chan feed.Change {
	w.t.Helper()
	client, err := bus.Open(w.redis.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { client.Close() })
	sub := client.Subscribe(context.Background(), feed.Hints)
	if _, err := sub.Receive(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { sub.Close() })
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
		client.Publish(context.Background(), feed.Acks, feed.Ack{ID: change.ID, Slot: "deaf", Incarnation: deadIncarnation}.Encode())
		heard <- change
	}
}

func TestChangeIsPendingWhileAnEdgeCannotBeHeardOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.serve().client(*w.organization(catalog.Growth).ServerKey)
	links := []catalog.Link{c.created(`{"path":"/a"}`), c.created(`{"path":"/b"}`)}
	const lease = 600 * time.Millisecond
	w.deafEdge(lease, time.Hour)

	for _, test := range []struct {
		method, path, body string
		status             int
		least              time.Duration
	}{
		{"PATCH", "/links/" + links[0].ID, `{"isActive":false}`, 200, lease},
		{"DELETE", "/links/" + links[0].ID, ``, 200, lease},
		{"DELETE", "/links/" + links[0].ID, ``, 404, lease},
		{"GET", "/links/" + links[0].ID, ``, 404, lease},
		{"PATCH", "/links/" + links[0].ID, `{}`, 404, lease},
		{"GET", "/links/" + links[0].ID + "/qr.svg", ``, 404, lease},
		{"POST", "/links", `{"path":"/c"}`, 201, 250 * time.Millisecond},
	} {
		began := time.Now()
		r := c.do(test.method, test.path, test.body)
		took := time.Since(began)
		if r.status != test.status || r.header.Get(relay.Header) != "pending" || took < test.least {
			t.Errorf("%s %s: %s after %v, expected %d, pending, after %v at least", test.method, test.path, r, took, test.status, test.least)
		}
	}
	// What never was waits for nobody.
	if r := c.do("GET", "/links/00000000-0000-7000-8000-000000000000", ""); r.status != http.StatusNotFound || r.header.Get(relay.Header) != "" {
		t.Errorf("a link that never was: %s, expected 404 without a wait", r)
	}
	// A patch that changes nothing waits for the change that was there before it.
	first := c.do("PATCH", "/links/"+links[1].ID, `{"path":"/new"}`)
	began := time.Now()
	again := c.do("PATCH", "/links/"+links[1].ID, `{"path":"/new"}`)
	if took := time.Since(began); first.header.Get(relay.Header) != "pending" || again.header.Get(relay.Header) != "pending" || took < lease {
		t.Errorf("a patch and its repeat: %s, %s after %v, expected both pending", first, again, took)
	}
}

func TestChangeIsCompleteOnceTheEdgeAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Growth)
	p := w.serve()
	c := p.client(*organization.ServerKey)
	w.deafEdge(time.Minute, time.Hour)
	heard := w.hear()
	await(t, "the life of a link of which Redis took every hint in time", func() error {
		lost := p.counted(t, "hints_lost_total")
		link := c.created(`{"path":"/a","shortCode":"Code"}`)
		changed, deleted := c.do("PATCH", "/links/"+link.ID, `{"path":"/b"}`), c.do("DELETE", "/links/"+link.ID, "")
		if p.counted(t, "hints_lost_total") != lost {
			for len(heard) > 0 {
				<-heard
			}
			return errors.New("a hint was lost")
		}
		for _, r := range []reply{changed, deleted} {
			if r.status != http.StatusOK || r.header.Get(relay.Header) != "complete" {
				t.Errorf("%s, expected 200, complete", r)
			}
		}
		return nil
	})
	tag := feed.KeyTag(catalog.Key(organization.OrgKey, "", "Code"))
	for range 3 {
		select {
		case change := <-heard:
			if fmt.Sprint(change.Tags) != "["+tag+"]" {
				t.Errorf("the hint names %v, expected %s", change.Tags, tag)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a hint was not sent")
		}
	}
}
