package relay

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"deeplink/shared/feed"
)

// waitFor adds a call that waits for the change with the id.
func waitFor(r *Relay, id int64) *wait {
	w := &wait{change: feed.Change{ID: id, XID: uint64(id) + 1}, committed: time.Now(), acks: make(map[feed.Ack]struct{}), moved: make(chan struct{}, 1)}
	r.add(w)
	return w
}

func newIdleRelay() *Relay { return New(nil, nil, slog.New(slog.NewTextHandler(io.Discard, nil))) }

func TestAcknowledgementTouchesOnlyTheCallsOfItsChange(t *testing.T) {
	t.Parallel()
	r := newIdleRelay()
	const change = 7
	ack := feed.Ack{ID: change, Slot: "a", Incarnation: first}
	concerned := map[*wait]bool{waitFor(r, change): true, waitFor(r, change): true, waitFor(r, change): true}
	var others []*wait
	for id := range int64(2000) {
		if id != change {
			others = append(others, waitFor(r, id)) // 0 is a barrier
		}
	}
	// A loop over all calls would panic on this one.
	r.waiting.all[nil] = struct{}{}
	touched := 0
	for w := range r.waiting.of(change) {
		touched++
		if !concerned[w] {
			t.Errorf("an acknowledgement of change %d touches a call that waits for %d", change, w.change.ID)
		}
	}
	if touched != len(concerned) {
		t.Errorf("an acknowledgement touches %d of %d waiting calls, expected the %d of its change", touched, len(others)+len(concerned), len(concerned))
	}
	r.acknowledged(string(ack.Encode()))
	r.acknowledged(string(ack.Encode())) // once more
	r.acknowledged(string(feed.Ack{ID: change + 5000, Slot: "a", Incarnation: first}.Encode()))
	for w := range concerned {
		if _, ok := w.acks[ack]; !ok || len(w.acks) != 1 || len(w.moved) != 1 {
			t.Errorf("a call of the change has the acknowledgements %v and %d wake-ups, expected the one and one", w.acks, len(w.moved))
		}
	}
	for _, w := range others {
		if len(w.acks) != 0 || len(w.moved) != 0 {
			t.Errorf("a call of change %d has the acknowledgements %v and %d wake-ups, expected none", w.change.ID, w.acks, len(w.moved))
		}
	}
	delete(r.waiting.all, nil)
	for w := range concerned {
		r.remove(w)
		for left := range r.waiting.of(change) {
			if left == w {
				t.Error("a call that has ended still gets acknowledgements")
			}
		}
	}
	for _, w := range others {
		r.remove(w)
	}
	if len(r.waiting.all) != 0 || len(r.waiting.byChange) != 0 {
		t.Errorf("%d calls of %d changes are left when all have ended", len(r.waiting.all), len(r.waiting.byChange))
	}
}

func BenchmarkAcknowledge(b *testing.B) {
	for _, n := range []int64{1, 100, 10_000} {
		b.Run(fmt.Sprintf("%d waiting", n), func(b *testing.B) {
			r := newIdleRelay()
			for id := range n {
				waitFor(r, id+1)
			}
			payload := string(feed.Ack{ID: n, Slot: "a", Incarnation: first}.Encode())
			for b.Loop() {
				r.acknowledged(payload)
			}
		})
	}
}
